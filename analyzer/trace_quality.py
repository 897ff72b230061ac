"""How far a trace can be trusted: missing, cropped, cold or disturbed parts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.intervals import EMPTY, Intervals, intersect, union
from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.stalls.idle import Gaps, Idle
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.device import TraceDevice
from traceopt.analyzer.timeline.gpu_work import GpuWork
from traceopt.analyzer.timeline.launch_links import LaunchLinks, launched_before
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.vocabulary.event_categories import COUNTER_RANGE_CATEGORY, HARDWARE_COUNTERS, unread

SAMPLED_BELOW = 0.25  # of the events that the profiler numbered; whole traces hold at least 0.78 of them, samples 0.01
# Idle time before work that is already queued; between two kernels of a stream it is microseconds.
LONG_QUEUED_NS = 1_000_000
CONTEXT_NS = 10_000_000  # an allocation takes less than a millisecond unless it creates the context


class TraceQuality(Struct, frozen=True, dict=True):
    """Measured signs that a trace is incomplete or misleading. Shares are of the window."""

    trace: Trace
    steps: Steps
    gpu: GpuWork
    links: LaunchLinks
    gaps: Gaps
    idle: Idle
    device: TraceDevice

    @property
    def has_gpu_work(self) -> bool:
        return len(self.gpu.work) > 0

    @property
    def counter_run(self) -> bool:
        """Hardware counters were collected: kernels were replayed and serialized, so durations are not real."""
        return COUNTER_RANGE_CATEGORY in self.trace.meta.categories

    @property
    def counter_readings(self) -> int:
        """Readings of hardware counters that were sampled beside the run, which locks the GPU's clocks."""
        return self.trace.meta.categories.get(HARDWARE_COUNTERS, 0)

    @property
    def unread(self) -> dict[str, int]:
        """Number of events by category that were counted but not used."""
        return unread(self.trace.meta.categories)

    @cached_property
    def gpu_expected(self) -> bool:
        """The process used a GPU, recorded or not: there are runtime calls, listed devices or NCCL names."""
        return (
            len(self.trace.runtime) > 0
            or bool(self.trace.meta.device_properties())
            or any(name.startswith("nccl:") for name in self.trace.names)
        )

    @property
    def sampled_share(self) -> float | None:
        """Share of the profiler's numbered events that is in the file, if so small that the file was sampled; else
        None.
        """
        share = self.trace.meta.recorded_index_share
        return share if share is not None and share < SAMPLED_BELOW else None

    @cached_property
    def cold_share(self) -> float:
        """The GPU starved while the driver loaded code or created the context."""
        if not self.has_gpu_work:
            return 0.0
        runtime = self.trace.runtime
        slow = self._calls(op_names.is_allocation) & (runtime.duration >= CONTEXT_NS)
        context = intersect(union(runtime.start[slow], runtime.end_of(slow)), self.gaps.starved)
        return (self.idle.total_ns("module_load") + context.total) / self.steps.window_ns

    @cached_property
    def _queued(self) -> I8:
        """Idle time before work that is already launched, for gaps where it is long; ns per gap."""
        queued = self.gaps.end - self.gaps.starved_end
        return np.where(queued >= LONG_QUEUED_NS, queued, 0)

    @property
    def long_queued_share(self) -> float:
        """Idle for at least a millisecond although the next work was already launched."""
        return float(self._queued.sum() / self.steps.window_ns)

    @property
    def leading_queued_share(self) -> float:
        """Such idle time before the file's first GPU work, which waited for work that the file does not show."""
        return float(self._queued[self.gaps.next_row == 0].sum() / self.steps.window_ns)

    @cached_property
    def _orphan(self) -> Mask:
        """Device work whose launch is missing from a file that has launches."""
        if not len(self.trace.runtime):
            return np.zeros(len(self.gpu.rows), bool)
        return np.asarray(self.links.launch[self.gpu.rows] < 0)

    @cached_property
    def _earlier(self) -> Mask:
        """Work that was launched before the file begins."""
        return launched_before(self.gpu.work, self._orphan)

    @cached_property
    def earlier_share(self) -> float:
        """Share of busy time spent on work launched before the file begins."""
        return self._busy_share(self._earlier)

    @property
    def lead_steps(self) -> float:
        """How long the file covers before the first measured step, in median steps: the end of a truncated step."""
        return float(self.steps.host_start[0] / max(1.0, median(self.steps.duration)))

    @cached_property
    def lost_launches(self) -> int:
        """GPU events whose launch should be in the file but is not."""
        return int((self._orphan & ~self._earlier).sum())

    def _busy_share(self, mask: Mask) -> float:
        return self.gpu.area(mask).total / self.gpu.busy.total if mask.any() and self.gpu.busy.total else 0.0

    @cached_property
    def _launches(self) -> I8:
        """Runtime rows of kernel launches inside the window, without graph capture, where a launch is recorded but not
        run.
        """
        runtime = self.trace.runtime
        inside = self.steps.host_window.contains(runtime.start) & ~self.captures.contains(runtime.start)
        return np.flatnonzero(self._calls(op_names.is_kernel_launch) & inside)

    @property
    def launch_count(self) -> int:
        """Kernel launches inside the window."""
        return len(self._launches)

    @cached_property
    def launches_without_work(self) -> int:
        """Kernel launches inside the window without a GPU event."""
        if not self.has_gpu_work:
            return 0
        return int((~np.isin(self._launches, self.links.launch)).sum())

    @cached_property
    def captures(self) -> Intervals:
        """When a CUDA graph was captured or instantiated, inside the window."""
        runtime = self.trace.runtime
        rows = np.flatnonzero(self._calls(op_names.is_stream_capture))
        if not len(rows):
            return EMPTY
        names = [self.trace.names[code] for code in runtime.name[rows]]
        begins = runtime.start[rows[["BeginCapture" in name for name in names]]]
        ends = runtime.end_of(rows[["EndCapture" in name for name in names]])
        close = np.searchsorted(ends, begins)
        begins, close = begins[close < len(ends)], close[close < len(ends)]
        spans = (np.append(runtime.start[rows], begins), np.append(runtime.end_of(rows), ends[close]))
        return intersect(union(*spans), self.steps.window)

    @property
    def capture_share(self) -> float:
        return self.captures.total / self.steps.window_ns

    def _calls(self, test: Callable[[str], bool]) -> Mask:
        """Runtime rows whose name passes the test."""
        passes = np.array([test(name) for name in self.trace.names] or [False])
        return passes[self.trace.runtime.name] if len(self.trace.runtime) else np.empty(0, bool)
