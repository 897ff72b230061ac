"""What the GPU's own counters measured over the steps and during some of the work, where they were sampled."""

from __future__ import annotations

import re
from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.intervals import Intervals
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.gpu_work import GpuWork
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary.counter_names import METRICS

MIN_SAMPLES = 100  # in the steps, or in the work: fewer are no mean
_COVERED = 0.9  # of each step must have samples; of the time of a sample must be such work


class Samples(Struct, frozen=True):
    """Samples of one metric inside the steps, in order of time. Arrays have shape (samples,)."""

    time: I8  # ns
    share: npt.NDArray[np.float64]  # of the most that is possible, 0..1
    period_ns: int

    @property
    def mean(self) -> float:
        return float(self.share.mean())


class MeasuredCounters(Struct, frozen=True, dict=True):
    """The metrics that cover all steps, as shares of the most that is possible (0..1); None: not sampled."""

    samples: dict[str, Samples]
    gpu: GpuWork

    @property
    def sm_active(self) -> float | None:
        return self._mean("sm_active")

    @property
    def tensor_active(self) -> float | None:
        return self._mean("tensor_active")

    @property
    def dram(self) -> float | None:
        """Throughput of the GPU's memory; None unless both directions were sampled."""
        return self._together(None)

    @property
    def nvlink(self) -> float | None:
        """Throughput of the GPU's links to other GPUs, in the busier direction."""
        return self._busier("nvlink_in", "nvlink_out", None)

    @property
    def pcie(self) -> float | None:
        """Throughput of the GPU's bus to the host, in the busier direction."""
        busier = self._busier("pcie_in", "pcie_out", None)
        return self._mean("pcie") if busier is None else busier

    def tensor_active_during(self, work: Mask) -> float | None:
        """While only this work ran, shape (len(gpu.work),); None if too few samples lie inside it."""
        return self._mean("tensor_active", work)

    def sm_active_during(self, work: Mask) -> float | None:
        """While only this work ran; None if too few samples lie inside it."""
        return self._mean("sm_active", work)

    def dram_during(self, work: Mask) -> float | None:
        """While only this work ran; None if too few samples lie inside it."""
        return self._together(work)

    def nvlink_during(self, work: Mask) -> float | None:
        """While only this work ran, computation aside; None if too few samples lie inside it."""
        return self._busier("nvlink_in", "nvlink_out", work)

    def _together(self, work: Mask | None) -> float | None:
        read, written = self._mean("dram_read", work), self._mean("dram_write", work)
        if read is not None and written is not None:
            return min(1.0, read + written)
        whole = self._mean("dram", work)
        return self._mean("gpu_dram", work) if whole is None else whole

    def _busier(self, into: str, out: str, work: Mask | None) -> float | None:
        ways = [self._mean(metric, work) for metric in (into, out)]
        return None if None in ways else max(share for share in ways if share is not None)

    def _mean(self, metric: str, work: Mask | None = None) -> float | None:
        """The mean over the steps, or while only rows of `work` ran."""
        samples = self.samples.get(metric)
        if samples is None or work is None:
            return None if samples is None else samples.mean
        alone = self._transfers_alone if metric.startswith("nvlink") else self._work_alone
        mine = work[alone.row]
        # Whether a sample stands for the time before or after it is not documented, so both have to be inside.
        first, last = samples.time - samples.period_ns, samples.time + samples.period_ns
        covered = Intervals(alone.start[mine], alone.end[mine]).within(first, last)
        inside = covered >= _COVERED * 2 * samples.period_ns
        return float(samples.share[inside].mean()) if int(inside.sum()) >= MIN_SAMPLES else None

    @cached_property
    def _work_alone(self) -> Alone:
        return _alone(self.gpu, np.flatnonzero(self._sampled))

    @cached_property
    def _transfers_alone(self) -> Alone:
        """Computation may run beside them."""
        return _alone(self.gpu, np.flatnonzero(self._sampled & (self.gpu.is_communication | self.gpu.is_copy)))

    @property
    def _sampled(self) -> Mask:
        """The work of the GPU whose counters these are."""
        return np.asarray(self.gpu.work.device == self.gpu.device)


class Alone(Struct, frozen=True):
    """When a single row of the device's work ran. Arrays have shape (spans,), in order of time; they do not overlap."""

    start: I8  # ns
    end: I8
    row: I8


def _alone(gpu: GpuWork, rows: npt.NDArray[np.int64]) -> Alone:
    """When exactly one of these rows ran, and which."""
    edge = np.concatenate([gpu.work.start[rows], gpu.work.end[rows]])
    change = np.repeat([1, -1], len(rows))
    order = np.argsort(edge, kind="stable")
    edge, change = edge[order], change[order]
    running = np.cumsum(change)[:-1]
    which = np.cumsum(change * np.concatenate([rows, rows])[order])[:-1]  # the only row, where one is running
    spans = np.flatnonzero((running == 1) & (np.diff(edge) > 0))
    return Alone(edge[spans], edge[spans + 1], which[spans])


def find_measured_counters(trace: Trace, steps: Steps, gpu: GpuWork) -> MeasuredCounters | None:
    """The metrics of this GPU; None if its counters were not sampled."""
    counters = trace.counters
    if not len(counters):
        return None
    own = counters.device == gpu.device if gpu.device is not None else np.ones(len(counters), bool)
    found: dict[str, Samples] = {}
    for metric, pattern in METRICS.items():
        named = np.array([re.fullmatch(pattern, name) is not None for name in trace.names])
        rows = np.flatnonzero(own & named[counters.name])
        if len(set(counters.name[rows].tolist())) == 1:
            samples = _in_steps(counters.time[rows], counters.value[rows] / 100, steps)
            if samples is not None:
                found[metric] = samples
    return MeasuredCounters(found, gpu) if found else None


def _in_steps(time: I8, share: npt.NDArray[np.float64], steps: Steps) -> Samples | None:
    """The samples inside the steps; None if there are too few, if a step lacks some, or if they are no shares."""
    step = steps.step_of(time)
    inside = np.flatnonzero(step >= 0)
    if len(inside) < MIN_SAMPLES or not (share[inside].min() >= 0 and share[inside].max() <= 1):
        return None
    period_ns = int(np.median(np.diff(time[inside])))
    if period_ns <= 0:
        return None
    expected = steps.duration / period_ns - 1
    if (np.bincount(step[inside], minlength=steps.count) < _COVERED * expected).any():
        return None
    return Samples(time[inside], share[inside], period_ns)
