"""How far a trace can be trusted: what is missing, cropped, cold or disturbed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from traceopt.analyzer import op_names
from traceopt.analyzer.categories import COUNTER_RANGE_CATEGORY
from traceopt.analyzer.device import TraceDevice
from traceopt.analyzer.gpu import GpuWork
from traceopt.analyzer.idle import Gaps, Idle
from traceopt.analyzer.intervals import union
from traceopt.analyzer.links import Links
from traceopt.analyzer.steps import Steps
from traceopt.analyzer.trace import Trace

SAMPLED_BELOW = 0.5  # of the events that the profiler numbered; whole traces keep 0.78 and more
LONG_QUEUED_NS = 1_000_000  # an idle gap before queued work; between two kernels of a stream it is microseconds


@dataclass(frozen=True)
class TraceQuality:
    """Measured signs of a trace that does not show the whole truth. Shares are of the window."""

    trace: Trace
    steps: Steps
    gpu: GpuWork
    links: Links
    gaps: Gaps
    idle: Idle
    device: TraceDevice

    @property
    def has_gpu_work(self) -> bool:
        return len(self.gpu.work) > 0

    @property
    def counter_run(self) -> bool:
        """Hardware counters were collected: kernels replayed and serialized, no durations."""
        return COUNTER_RANGE_CATEGORY in self.trace.meta.categories

    @cached_property
    def gpu_expected(self) -> bool:
        """The process used a GPU, as runtime calls, listed devices or NCCL show, whether its work was recorded or not."""
        return (
            len(self.trace.runtime) > 0
            or bool(self.trace.meta.device_properties())
            or any(name.startswith("nccl:") for name in self.trace.names)
        )

    @property
    def sampled_share(self) -> float | None:
        """Events kept of those that the profiler numbered, when so few are that the file was sampled."""
        share = self.trace.meta.recorded_index_share
        return share if share is not None and share < SAMPLED_BELOW else None

    @cached_property
    def cold_share(self) -> float:
        """The GPU starved while the driver loaded code or the context was built."""
        return self.idle.total_ns("module_load") / self.steps.window_ns if self.has_gpu_work else 0.0

    @cached_property
    def long_queued_share(self) -> float:
        """Idle for a millisecond and more although the next work had been launched."""
        queued = self.gaps.end - self.gaps.starved_end
        return float(queued[queued >= LONG_QUEUED_NS].sum() / self.steps.window_ns)

    @cached_property
    def orphan_count(self) -> int:
        """GPU events whose launch is not in the file, in a file that holds launches."""
        if not len(self.trace.runtime):
            return 0
        return int((self.links.launch[self.gpu.rows] < 0).sum())

    @cached_property
    def orphan_share(self) -> float:
        """Of the busy time, that of work whose launch is not in the file."""
        if not self.orphan_count or not self.gpu.busy.total:
            return 0.0
        orphan = self.links.launch[self.gpu.rows] < 0
        return self.gpu.area(orphan).total / self.gpu.busy.total

    @cached_property
    def launches_without_work(self) -> int:
        """Kernel launches inside the window that no GPU event answers."""
        if not self.has_gpu_work:
            return 0
        names = np.array([op_names.is_kernel_launch(name) for name in self.trace.names] or [False])
        launches = np.flatnonzero(names[self.trace.runtime.name]) if len(self.trace.runtime) else np.empty(0, np.int64)
        start, end = self.steps.window
        inside = launches[(self.trace.runtime.start[launches] >= start) & (self.trace.runtime.end[launches] < end)]
        return int((~np.isin(inside, self.links.launch)).sum())

    @cached_property
    def capture_share(self) -> float:
        """Share of the window between the beginnings and ends of graph captures."""
        names = np.array([op_names.is_stream_capture(name) for name in self.trace.names] or [False])
        rows = np.flatnonzero(names[self.trace.runtime.name]) if len(self.trace.runtime) else np.empty(0, np.int64)
        start, end = self.steps.window
        rows = rows[(self.trace.runtime.start[rows] >= start) & (self.trace.runtime.start[rows] < end)]
        if not len(rows):
            return 0.0
        opens = [i for i in rows if "Begin" in self.trace.names[self.trace.runtime.name[i]]]
        closes = [i for i in rows if "End" in self.trace.names[self.trace.runtime.name[i]]]
        spans = list(zip(opens, closes, strict=False))
        if not spans:
            return float(self.trace.runtime.duration[rows].sum() / self.steps.window_ns)
        runtime = self.trace.runtime
        return (
            union(runtime.start[[a for a, _ in spans]], runtime.end[[b for _, b in spans]]).total / self.steps.window_ns
        )

    @property
    def stacks_recorded(self) -> bool:
        return len(self.trace.python) > 0
