"""What the GPU's own counters measured over the steps, where they were sampled."""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.steps import Steps

MIN_SAMPLES = 100  # in the steps: fewer are no mean of a step
_PERCENT = r".*\[Throughput %\]"
_METRICS = {
    "sm_active": re.compile("SMs? Active" + _PERCENT),
    "tensor_active": re.compile("Tensor Active" + _PERCENT),
    "dram_read": re.compile("DRAM Read (Bandwidth|Throughput)" + _PERCENT),
    "dram_write": re.compile("DRAM Write (Bandwidth|Throughput)" + _PERCENT),
}


class MeasuredCounters(Struct, frozen=True):
    """Means over the typical steps, as shares of the most that is possible (0..1); None: not sampled."""

    sm_active: float | None = None
    tensor_active: float | None = None
    dram_read: float | None = None
    dram_write: float | None = None

    @property
    def dram(self) -> float | None:
        """Throughput of the GPU's memory; None unless both directions were sampled."""
        return None if self.dram_read is None or self.dram_write is None else self.dram_read + self.dram_write


def find_measured_counters(trace: Trace, steps: Steps, device: int | None) -> MeasuredCounters | None:
    """The means of this GPU; None if its counters were not sampled."""
    counters = trace.counters
    inside = steps.step_of(counters.time) >= 0 if len(counters) else np.empty(0, bool)
    if device is not None:
        inside &= counters.device == device
    means: dict[str, float] = {}
    for metric, pattern in _METRICS.items():
        named = np.array([pattern.fullmatch(name) is not None for name in trace.names] or [False])
        rows = np.flatnonzero(inside & named[counters.name]) if len(counters) else np.empty(0, np.int64)
        values = counters.value[rows]
        if len(rows) >= MIN_SAMPLES and len(set(counters.name[rows].tolist())) == 1 and _are_percent(values):
            means[metric] = float(values.mean()) / 100
    return MeasuredCounters(**means) if means else None


def _are_percent(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> bool:
    return bool(values.min() >= 0 and values.max() <= 100)
