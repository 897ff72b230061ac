"""How much of the run's own work one GPU gets through, given what a step of it processes."""

from __future__ import annotations

from msgspec import Struct


class Workload(Struct, frozen=True):
    """What the user says of the run: tokens or samples that one GPU processes in a step, and the rate to reach.

    `reference` is in tokens a second and GPU where tokens are given, else in samples.
    """

    tokens_per_step: float | None = None
    samples_per_step: float | None = None
    reference: float | None = None


class Throughput(Struct, frozen=True):
    """Of one GPU, over the mean step."""

    tokens_per_s: float | None
    samples_per_s: float | None
    reference_per_s: float | None

    @property
    def unit(self) -> str:
        return "samples" if self.tokens_per_s is None else "tokens"

    @property
    def per_s(self) -> float | None:
        """Tokens where they are known, else samples."""
        return self.samples_per_s if self.tokens_per_s is None else self.tokens_per_s

    @property
    def reference_share(self) -> float | None:
        return self.per_s / self.reference_per_s if self.per_s and self.reference_per_s else None


def measure(workload: Workload, mean_step_ns: float) -> Throughput | None:
    """None where nothing is known of the step's work."""
    if workload.tokens_per_step is None and workload.samples_per_step is None:
        return None
    tokens, samples = (
        None if amount is None else amount * 1e9 / mean_step_ns
        for amount in (workload.tokens_per_step, workload.samples_per_step)
    )
    return Throughput(tokens, samples, workload.reference)
