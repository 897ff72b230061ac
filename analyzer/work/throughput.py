"""Throughput of one GPU in tokens or samples, given what a step processes."""

from __future__ import annotations

from msgspec import Struct


class Workload(Struct, frozen=True):
    """What the user says about the run: tokens or samples that one GPU processes per step, and a reference rate.

    `reference` is in tokens per second and GPU if tokens are given, else in samples.
    """

    tokens_per_step: float | None = None
    samples_per_step: float | None = None
    reference: float | None = None


class MeasuredThroughput(Struct, frozen=True):
    """Throughput of one GPU, over the typical step."""

    tokens_per_s: float | None
    samples_per_s: float | None
    reference_per_s: float | None

    @property
    def unit(self) -> str:
        return "samples" if self.tokens_per_s is None else "tokens"

    @property
    def per_s(self) -> float | None:
        """Tokens per second if known, else samples per second."""
        return self.samples_per_s if self.tokens_per_s is None else self.tokens_per_s

    @property
    def reference_share(self) -> float | None:
        return self.per_s / self.reference_per_s if self.per_s and self.reference_per_s else None


def measure(workload: Workload, mean_step_ns: float) -> MeasuredThroughput | None:
    """The throughput; None if the user said nothing about the work of a step."""
    if workload.tokens_per_step is None and workload.samples_per_step is None:
        return None
    tokens, samples = (
        None if amount is None else amount * 1e9 / mean_step_ns
        for amount in (workload.tokens_per_step, workload.samples_per_step)
    )
    return MeasuredThroughput(tokens, samples, workload.reference)
