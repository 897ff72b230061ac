"""How far a trace can be trusted: missing, cropped, cold or disturbed parts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Literal

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.intervals import EMPTY, Intervals, intersect, subtract, union
from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.attribution.idle import Gaps, Idle
from traceopt.analyzer.missing_events import Missing, arrow_ends, holes
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.tables.trace import CUT_OFF, Trace
from traceopt.analyzer.timeline.device import TraceDevice
from traceopt.analyzer.timeline.gpu_work import GpuWork
from traceopt.analyzer.timeline.launch_links import LaunchLinks, launched_before
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import runtime_calls
from traceopt.analyzer.vocabulary.causes.table import MODULE_LOAD, QUEUED, STARTUP
from traceopt.analyzer.vocabulary.event_categories import COUNTER_RANGE_CATEGORY, HARDWARE_COUNTERS, unread
from traceopt.result.words.vendors import CPU

SAMPLED_BELOW = 0.25  # of the events that the profiler numbered; whole traces hold at least 0.78 of them, samples 0.01
# Idle time before work that is already queued; between two kernels of a stream it is microseconds.
LONG_QUEUED_NS = 1_000_000
LONG_SYNC_NS = 1_000_000  # of a sync without GPU work; on an idle GPU it returns in microseconds
# GPU events of a recording that may hold a step: the forward pass of a small model launches about 50 kernels. A step
# that the user marked may be as small as in a toy model.
FEWEST_EVENTS = 50
FEWEST_EVENTS_OF_A_MARKED_STEP = 10
# Of the launches, the copies or the GPU's work: if so much of one lacks the other, events were dropped. In whole files,
# nothing lacks it.
DROPPED_SHARE = 0.02


class TraceQuality(Struct, frozen=True, dict=True):
    """Measured signs that a trace is incomplete or misleading. Shares are of the window."""

    trace: Trace
    steps: Steps
    gpu: GpuWork
    links: LaunchLinks
    gaps: Gaps
    idle: Idle
    device: TraceDevice
    earlier_work: Intervals = EMPTY

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
        used = {HARDWARE_COUNTERS} if len(self.trace.counters) else set()
        return {name: count for name, count in unread(self.trace.meta.categories).items() if name not in used}

    @cached_property
    def damaged(self) -> bool:
        """The file ends too early or its text is broken, so whole kinds of events may be missing.

        However large a hole in the text is, all that one sees of it is a single event that is lost, or one that could
        be repaired and launches without work.
        """
        meta = self.trace.meta
        joined = meta.repaired_events > 0 and any(kind.count for kind in self.unlinked)
        return meta.damage is not None or meta.lost_events > 0 or joined

    @cached_property
    def lost_events(self) -> int:
        """At least as many events are not in the file. A hole in its text is one loss, however large it is."""
        return self.trace.meta.lost_events + (arrow_ends(self.trace, self.links) if self.damaged else 0)

    @cached_property
    def missing(self) -> Missing:
        """What is known to be missing most, as a share of its kind."""
        meta = self.trace.meta
        unread = (
            Missing("events", self.lost_events, meta.event_count + self.lost_events),
            Missing("text", meta.unread_bytes, meta.byte_count),
        )
        return max((*unread, *self.unlinked), key=lambda kind: kind.share)

    @property
    def cut_off(self) -> bool:
        """The file ends inside an event. Events are written by kind, not by time, so whole kinds may be missing."""
        meta = self.trace.meta
        return CUT_OFF in (meta.damage or "") and meta.lost_events > 0

    @cached_property
    def lost_all_gpu_events(self) -> bool:
        """The file ends before its first GPU event, although its header names a GPU or its calls use one. So it looks
        like the file of a CPU run.
        """
        if self.has_gpu_work or CUT_OFF not in (self.trace.meta.damage or ""):
            return False
        return bool(self.trace.meta.device_properties()) or bool(self._calls(runtime_calls.is_launch).any())

    @property
    def gpu_expected(self) -> bool:
        """The process used an accelerator, recorded or not, or may have."""
        return self.trace.meta.damage is not None or self.device.vendor is not CPU

    @property
    def sampled_share(self) -> float | None:
        """Share of the profiler's numbered events that is in the file, if so small that the file was sampled; else
        None.
        """
        share = self.trace.meta.recorded_index_share
        return share if share is not None and share < SAMPLED_BELOW else None

    @cached_property
    def cold(self) -> I8:
        """Starvation of each gap while the driver loaded code, created the context or initialized a library; ns."""
        return self.idle.of_gaps(MODULE_LOAD) + self.idle.of_gaps(STARTUP)

    @property
    def cold_share(self) -> float:
        """The GPU starved while the driver loaded code or created the context."""
        return float(self.cold.sum() / self.steps.window_ns) if self.has_gpu_work else 0.0

    @property
    def has_few_events(self) -> bool:
        """One window or step with too little GPU work to be a step. Several steps show by repetition what a step is."""
        fewest = FEWEST_EVENTS if self.steps.source == "window" else FEWEST_EVENTS_OF_A_MARKED_STEP
        return self.steps.count == 1 and len(self.gpu.work) < fewest

    @cached_property
    def before_or_after_work(self) -> Mask:
        """Gaps before the first and after the last GPU work of a recording of one step.

        With its neighbors recorded, their work could lie there.
        """
        work, gaps = self.gpu.work, self.gaps
        if self.steps.count > 1 or not len(work):
            return np.zeros(len(gaps), bool)
        return np.asarray((gaps.end <= work.start[0]) | (gaps.start >= work.end.max()))

    @property
    def edges(self) -> Intervals:
        """The same gaps as times."""
        edge = self.before_or_after_work
        return Intervals(self.gaps.start[edge], self.gaps.end[edge])

    @cached_property
    def hidden_work(self) -> I8:
        """Idle time of each gap in which the host waited for the GPU; ns.

        Only syncs that are long and copy nothing: they wait for work that the file does not hold.
        """
        runtime, gpu = self.trace.runtime, self.trace.gpu
        waits = self._calls(
            lambda name: (
                runtime_calls.is_blocking_sync(name)
                and not (runtime_calls.is_copy(name) or runtime_calls.is_allocation(name))
            )
        )
        waits &= runtime.duration >= LONG_SYNC_NS
        without_work = subtract(union(runtime.start[waits], runtime.end_of(waits)), union(gpu.start, gpu.end))
        long = without_work.length >= LONG_SYNC_NS
        return Intervals(without_work.start[long], without_work.end[long]).within(self.gaps.start, self.gaps.end)

    @property
    def lost_work_ns(self) -> float:
        """GPU time of the kernels that the file lacks, if they take as long as the others."""
        lacking = self.kernels.share
        return self.gpu.busy.total * lacking / (1 - lacking) if lacking < 1 else float("inf")

    @property
    def long_queued_share(self) -> float:
        """Idle for at least a millisecond although the next work was already launched."""
        queued = self.idle.of_gaps(QUEUED)
        return float(queued[queued >= LONG_QUEUED_NS].sum() / self.steps.window_ns)

    @property
    def earlier_work_share(self) -> float:
        """The time of earlier work, which is not in the file, as a share of itself and the steps."""
        return self.earlier_work.total / (self.earlier_work.total + self.steps.window_ns)

    @cached_property
    def _orphan(self) -> Mask:
        """Device work whose launch is missing from a file that tells which call launched which work."""
        if not self.trace.links_launches:
            return np.zeros(len(self.gpu.work), bool)
        return np.asarray(self.links.launch < 0)

    @cached_property
    def _earlier(self) -> Mask:
        """Work that was launched before the file begins."""
        return launched_before(self.gpu.work, self._orphan)

    @cached_property
    def earlier_share(self) -> float:
        """Share of the recording's busy time spent on work launched before the file begins, which is in no step."""
        work = self.gpu.work
        earlier = union(work.start[self._earlier], work.end[self._earlier])
        return float(earlier.total / max(1, union(work.start, work.end).total))

    @property
    def lead_steps(self) -> float:
        """How long the file covers before the first measured step, in median steps: the end of a truncated step."""
        return float(self.steps.host_start[0] / max(1.0, median(self.steps.duration)))

    @cached_property
    def lost_launches(self) -> int:
        """GPU events whose launch should be in the file but is not."""
        return int((self._orphan & ~self._earlier).sum())

    @cached_property
    def kernels(self) -> Missing:
        """Kernel launches inside the window without a kernel."""
        return self._without_work("kernels", runtime_calls.is_kernel_launch)

    def _without_work(self, kind: Literal["kernels", "copies"], test: Callable[[str], bool]) -> Missing:
        """Calls inside the window without their GPU work. In a graph capture, a launch is recorded but not run."""
        runtime = self.trace.runtime
        inside = self.steps.host_window.contains(runtime.start) & ~self.captures.contains(runtime.start)
        calls = np.flatnonzero(self._calls(test) & inside)
        unanswered = ~np.isin(calls, self.links.launch) if self.has_gpu_work else np.zeros(len(calls), bool)
        return Missing(kind, int(unanswered.sum()), len(calls))

    @cached_property
    def unlinked(self) -> tuple[Missing, ...]:
        """What calls, GPU work and operators show to be missing of each other; empty where they cannot be compared."""
        trace, work = self.trace, len(self.gpu.work)
        if not work or self.sampled_share is not None:
            return ()
        if not len(trace.runtime):
            return (Missing("launches", work, work),) if len(trace.ops) else ()
        if not trace.links_launches:
            return ()
        copies = self._without_work("copies", runtime_calls.is_copy)
        return self.kernels, copies, Missing("launches", self.lost_launches, work), *holes(trace, self.links)

    @property
    def events_were_dropped(self) -> bool:
        """Many launches lack their GPU work, or the other way round."""
        return any(kind.share > DROPPED_SHARE for kind in self.unlinked)

    @cached_property
    def captures(self) -> Intervals:
        """When a CUDA graph was captured or instantiated, inside the window."""
        runtime = self.trace.runtime
        rows = np.flatnonzero(self._calls(runtime_calls.is_stream_capture))
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
