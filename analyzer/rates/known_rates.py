"""The time of a matmul or an attention on a kind of device, from the most similar size that was measured there."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, cached_property
from math import dist, log2
from pathlib import Path

from msgspec import Struct, json

from traceopt.result.experiments import Attention, Experiment, Matmul, Timed

FARTHEST = 4.0  # octaves, over all dimensions: work without work of a similar size is not known
ALIGNED = 8  # columns and inner sizes that are no multiple of it have other kernels
BACKWARD = 2.5  # times the products of the forward of attention (Dao, "FlashAttention-2", 2023)

_Sizes = tuple[float, ...]


class KnownRates(Struct, frozen=True, dict=True):
    """The table of one kind of device."""

    device: str
    made_from: str
    timed: tuple[Timed, ...]

    def ns(self, experiment: Experiment) -> float | None:
        """What the work takes once, at the rate of the most similar size; None if nothing similar was measured."""
        if not isinstance(experiment, Matmul | Attention):
            return None
        at = _sizes(experiment)
        near = [(dist(at, other), rate) for other, rate in self._by_kind.get(_kind(experiment), ())]
        distance, rate = min(near, default=(FARTHEST + 1, 0.0))
        return flop(experiment) / rate if distance <= FARTHEST else None

    @cached_property
    def _by_kind(self) -> dict[tuple[object, ...], list[tuple[_Sizes, float]]]:
        """Sizes and rates in FLOP per ns."""
        found: dict[tuple[object, ...], list[tuple[_Sizes, float]]] = {}
        for one in self.timed:
            if isinstance(one.experiment, Matmul | Attention):
                rate = flop(one.experiment) / one.ns
                found.setdefault(_kind(one.experiment), []).append((_sizes(one.experiment), rate))
        return found


def known_rates(device: str | None) -> KnownRates | None:
    """The table of the device with this name."""
    return next((table for table in tables() if table.device == device), None)


def flop(work: Matmul | Attention) -> float:
    """What the work must compute; of causal attention half of the scores."""
    if isinstance(work, Matmul):
        return 2.0 * work.m * work.n * work.k * work.batch
    forward = 4.0 * work.batch * work.heads * work.queries * work.keys * work.head_size / (2 if work.causal else 1)
    return forward * (1 + BACKWARD) if work.backward else forward


def _kind(work: Matmul | Attention) -> tuple[object, ...]:
    """Work of different kinds has different rates in the same sizes."""
    if isinstance(work, Matmul):
        return Matmul, work.dtype, work.from_fp32, bool(work.n % ALIGNED or work.k % ALIGNED)
    return Attention, work.dtype, work.fused, work.backward


def _sizes(work: Matmul | Attention) -> _Sizes:
    if isinstance(work, Matmul):
        return tuple(map(log2, (work.m, work.n, work.k, work.batch)))
    return tuple(map(log2, (work.batch * work.heads, work.queries, work.keys, work.head_size)))


@cache
def tables() -> Iterable[KnownRates]:
    """All tables that are shipped with the package."""
    return [json.decode(file.read_bytes(), type=KnownRates) for file in sorted(Path(__file__).parent.glob("*.json"))]
