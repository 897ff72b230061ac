"""Every idle gap of the GPU with its cause: why the next kernel did not start earlier."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.arrays.intervals import EMPTY, Intervals, intersect, union
from traceopt.analyzer.attribution.attribution import Attribution
from traceopt.analyzer.tables.schema import I4, I8, Mask
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.gpu_work import GpuWork
from traceopt.analyzer.timeline.launch_links import LaunchLinks
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import event_categories, runtime_calls
from traceopt.analyzer.vocabulary.causes.cause import Cause
from traceopt.analyzer.vocabulary.causes.table import GRAPH_CALLBACK, HOST_SYNC, IDLE_CAUSES, QUEUED, UNTRACED

Activities = Callable[[int], Mapping[Cause, Intervals]]  # what a thread did: exclusive areas by cause
_TENTHS = 10
MOST_THREADS = 256  # threads that launch; gaps that other threads end are attributed to the training thread
# From the end of a launch call to its kernel on an idle GPU: 3-20 us seen, more for P2P setups.
LAUNCH_LATENCY_NS = 30_000


class Gaps(Struct, frozen=True, dict=True):
    """The idle gaps of a device, cut at step borders. Arrays have shape (len,), times in ns.

    From `start` to `starved_end` the GPU was starved: its next work was not launched yet. From there to `end` that work
    was queued, waiting for another stream, a copy, or work that the trace does not show.
    """

    start: I8
    end: I8
    starved_end: I8
    step: I8
    next_row: I8  # row of the device's work that ended the gap; len(work) if there was none
    thread: I4  # the CPU thread that launched it; the training thread if unknown

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def starved(self) -> Intervals:
        return union(self.start, self.starved_end)

    def between(self, work: Mask, start: I8) -> Intervals:
        """The starved time between each of some work and the next. `start`: of all the device's work."""
        some = np.append(work, False)
        rows = some[np.searchsorted(start, self.start) - 1] & some[self.next_row]
        return union(self.start[rows], self.starved_end[rows])


def find_gaps(gpu: GpuWork, links: LaunchLinks, steps: Steps) -> Gaps:
    """The gaps of the window, each with the launch that ended it.

    Work whose launch is not in the file was launched before the file begins, so the gap before it is not starvation,
    provided that the file links launches to work at all.
    """
    work, idle = gpu.work, gpu.idle
    pieces = cut_at(idle, steps.start)
    whole = np.searchsorted(idle.start, pieces.start, side="right") - 1
    whole_start, whole_end = idle.start[whole], idle.end[whole]
    next_row = np.searchsorted(work.start, whole_end, side="left")
    comes = next_row < len(work)
    launch = np.full(len(pieces), -1, np.int64)
    launch[comes] = links.launch[next_row[comes]]
    runtime = gpu.trace.runtime
    launched = launch >= 0
    launch_end = np.where(launched, runtime.end_of(np.maximum(launch, 0)) if len(runtime) else 0, whole_start)
    if not gpu.trace.links_launches:
        launch_end = whole_end
    launch_end = np.where(comes, launch_end, whole_end)
    after_launch = np.where(launched & (launch_end > whole_start), launch_end + LAUNCH_LATENCY_NS, launch_end)
    starved_end = np.clip(after_launch, pieces.start, pieces.end)
    thread = np.where(launched, runtime.thread[np.maximum(launch, 0)] if len(runtime) else -1, steps.thread)
    threads, inverse, count = np.unique(thread, return_inverse=True, return_counts=True)
    if len(threads) > MOST_THREADS:
        rare = np.argsort(count, kind="stable")[:-MOST_THREADS]
        thread = np.where(np.isin(inverse, rare), steps.thread, thread)
    return Gaps(pieces.start, pieces.end, starved_end, steps.step_of(pieces.start), next_row, thread.astype(np.int32))


def cut_at(area: Intervals, cuts: I8) -> Intervals:
    """`area`, cut at each of these times, so pieces may touch."""
    inside = cuts[area.contains(cuts - 1) & area.contains(cuts)]
    start = np.sort(np.concatenate((area.start, inside)))
    end = np.sort(np.concatenate((area.end, inside)))
    return Intervals(start, end)


class Idle(Attribution, frozen=True, dict=True):
    """Idle time by cause: `amount` has shape (len(gaps), len(IDLE_CAUSES)), ns; each row sums to its gap."""

    gaps: Gaps
    amount: I8

    @property
    def causes(self) -> tuple[Cause, ...]:
        return IDLE_CAUSES

    @cached_property
    def by_step(self) -> I8:
        """Idle time by step and cause. Shape (steps, causes), ns."""
        return np.stack([self.steps.per_step(self.gaps.step, column) for column in self.amount.T], axis=1)

    def of_gaps(self, cause: Cause) -> I8:
        """Idle time of each gap due to a cause. Shape (len(gaps),), ns."""
        return self.amount[:, IDLE_CAUSES.index(cause)]

    def main_causes(self, gaps: I8) -> list[Cause]:
        """The cause of most of the time of each of these gaps."""
        return [IDLE_CAUSES[index] for index in self.amount[gaps].argmax(axis=1).tolist()]

    def recurring_ns(self, cause: Cause) -> float:
        """Time per step due to a cause. A recording without step marks has one step for all: ten times the time in its
        median tenth counts, so that a cost at its start is no cost of every step. A gap belongs to the tenth in which
        it begins.
        """
        if self.steps.source != "window" or not len(self.gaps):
            return self.typical_ns(cause)
        start, end = self.steps.span
        tenth = (self.gaps.start - start) * _TENTHS // (end - start)
        spent = np.bincount(tenth, weights=self.of_gaps(cause), minlength=_TENTHS)
        return float(min(spent.sum(), _TENTHS * np.median(spent)))


def attribute(
    gaps: Gaps, activities: Activities, steps: Steps, refill: Intervals = EMPTY, callbacks: Intervals = EMPTY
) -> Idle:
    """Attributes each gap to what the launching thread did while the GPU starved: `activities` of a thread by cause.

    In `refill`, the host launches again after a sync that drained the GPU: that time counts as the sync's. In
    `callbacks`, work that is queued waits for a function on the CPU.
    """
    amount = np.zeros((len(IDLE_CAUSES), len(gaps)), np.int64).T  # column-major, because it is filled cause by cause
    for thread in distinct_values(gaps.thread):
        rows = np.flatnonzero(gaps.thread == thread)
        start, end = gaps.start[rows], gaps.starved_end[rows]
        for cause, area in activities(int(thread)).items():
            if len(area):
                amount[rows, IDLE_CAUSES.index(cause)] += area.within(start, end)
    untraced = IDLE_CAUSES.index(UNTRACED)
    amount[:, untraced] = gaps.starved_end - gaps.start - amount.sum(axis=1)
    called = callbacks.within(gaps.starved_end, gaps.end)
    amount[:, IDLE_CAUSES.index(GRAPH_CALLBACK)] = called
    amount[:, IDLE_CAUSES.index(QUEUED)] = gaps.end - gaps.starved_end - called
    if len(refill):
        _move_refill(amount, gaps, activities, refill)
    return Idle(steps, gaps, amount)


def graph_callbacks(trace: Trace) -> Intervals:
    """When streams waited for CPU callbacks inside of CUDA graphs."""
    if not len(trace.sync):
        return EMPTY
    named = np.array([name.startswith(event_categories.GRAPH_CALLBACK) for name in trace.names])
    rows = np.flatnonzero(named[trace.sync.name])
    return union(trace.sync.start[rows], trace.sync.end_of(rows))


SLOW_CALL_NS = 1_000_000


def slow_calls(gpu: GpuWork, gaps: Gaps) -> npt.NDArray[np.bool_]:
    """Runtime rows that took at least a millisecond while the GPU starved, without copying or waiting: the driver loads
    code, builds a context, or compiles. A launch takes microseconds; one that waits for room in the queue is long only
    while the GPU is busy.
    """
    runtime = gpu.trace.runtime
    rows = np.flatnonzero(runtime.duration >= SLOW_CALL_NS)
    names = [gpu.trace.names[code] for code in runtime.name[rows]]
    plain = [
        not (
            runtime_calls.is_copy(n)
            or runtime_calls.is_blocking_sync(n)
            or runtime_calls.is_allocation(n)
            or runtime_calls.is_profiler_overhead(n)
        )
        for n in names
    ]
    rows = rows[np.array(plain, bool)]
    starved = gaps.starved.within(runtime.start[rows], runtime.end_of(rows))
    mask = np.zeros(len(runtime), bool)
    mask[rows[starved * 2 >= runtime.duration[rows]]] = True
    return mask


def _move_refill(amount: I8, gaps: Gaps, activities: Activities, refill: Intervals) -> None:
    """Gives the ordinary host work in the refill after a sync to the sync."""
    sync, untraced = IDLE_CAUSES.index(HOST_SYNC), IDLE_CAUSES.index(UNTRACED)
    for thread in distinct_values(gaps.thread):
        rows = np.flatnonzero(gaps.thread == thread)
        start, end = gaps.start[rows], gaps.starved_end[rows]
        areas = activities(int(thread))
        left = refill.within(start, end)
        for cause, area in areas.items():
            both = intersect(area, refill)
            if not len(both):
                continue
            inside = both.within(start, end)
            left -= inside
            if cause.host_work is not None:
                column = IDLE_CAUSES.index(cause)
                moved = np.minimum(inside, amount[rows, column])
                amount[rows, column] -= moved
                amount[rows, sync] += moved
        moved = np.clip(left, 0, amount[rows, untraced])
        amount[rows, untraced] -= moved
        amount[rows, sync] += moved
