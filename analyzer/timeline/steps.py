"""The measured steps: where each begins and ends, and which of them are typical.

A step goes from completion to completion: it ends when the host has reached its mark and the device has completed all
that was launched before. Where the host waits for the device in every step, that is the mark; where the host runs
ahead, its marks say nothing about how long a step takes.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.intervals import EMPTY, Intervals, union
from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.tables.schema import I8, Mask, Spans
from traceopt.analyzer.timeline.marks.marks import Marks, Source

# A step is unusual if it takes this many times longer (or shorter) than the median step, by more than this many robust
# standard deviations.
UNUSUAL_FACTOR = 1.2
UNUSUAL_DEVIATIONS = 3.0
MIN_COMPARED = 3  # with fewer steps, none can be called unusual
MIN_RECURRING = 2  # unusual steps that are no accident
MIN_WITH_EDGES = 4  # with fewer steps, the first and the last are needed
MAX_CUT = 0.05  # of a step: with no more of it missing or added, it is whole
FEWER = 0.9  # of the operators of any other step: a first one with fewer began before the recording


class Steps(Struct, frozen=True, dict=True):
    """Steps in order of time; arrays have shape (count,), ns.

    `start` and `end` go from completion to completion: what the device did, and when it was idle, belongs to the step
    of that time. `host_start` and `host_end` are the marks on the training thread: what the host did, and what it
    launched, belongs to the step of that time. The time between two marks belongs to the earlier one.
    """

    source: Source
    names: list[str]
    start: I8
    end: I8
    host_start: I8
    host_end: I8
    thread: int  # index into trace.threads, -1: unknown
    kind: I8 | None = None  # as in Marks
    cut: Mask | None = None  # the first and the last, if the profiler's start or stop is a part of them

    @property
    def count(self) -> int:
        return len(self.start)

    @property
    def duration(self) -> I8:
        return self.end - self.start

    @cached_property
    def window(self) -> Intervals:
        """The time of the steps."""
        return union(self.start, self.end)

    @cached_property
    def host_window(self) -> Intervals:
        """The time between the marks of the steps."""
        return union(self.host_start, self.host_end)

    @cached_property
    def window_ns(self) -> int:
        return max(1, int(self.duration.sum()))

    @property
    def span(self) -> tuple[int, int]:
        """From the start of the first step to the end of the last."""
        return int(self.start[0]), int(self.end[-1])

    @property
    def host_span(self) -> tuple[int, int]:
        """From the mark of the first step to the end of the last."""
        return int(self.host_start[0]), int(self.host_end[-1])

    def step_of(self, time: I8) -> I8:
        """Index of the step in which the device is at each time; -1 outside the steps."""
        return _index(self.start, self.end, time)

    def host_step_of(self, time: I8) -> I8:
        """Index of the step in which the host is at each time; -1 outside the steps."""
        return _index(self.host_start, self.host_end, time)

    def host_in(self, rows: npt.NDArray[np.integer], time: I8) -> Mask:
        """Whether the host is in one of these steps at each time."""
        return np.asarray(np.isin(self.host_step_of(time), rows))

    def per_step(self, step: I8, amount: I8) -> I8:
        """Sums of the amounts by step, ignoring those outside the steps (-1). Shape (count,)."""
        inside = step >= 0
        return np.bincount(step[inside], weights=amount[inside], minlength=self.count).astype(np.int64)

    def within(self, area: Intervals) -> I8:
        """Time of an area of the device, or of its idle time, in each step. Shape (count,), ns."""
        return area.within(self.start, self.end)

    def host_within(self, area: Intervals) -> I8:
        """Time of an area of the host in each step. Shape (count,), ns."""
        return area.within(self.host_start, self.host_end)

    def mean_ns(self, area: Intervals) -> float:
        """Time of an area of the device, or of its idle time, in the mean step."""
        return float(self.within(area).mean())

    def host_mean_ns(self, area: Intervals) -> float:
        """Time of an area of the host in the mean step."""
        return float(self.host_within(area).mean())

    @property
    def example(self) -> int:
        """Index of the step whose duration is closest to the mean; the longest of several, because a short one may be
        cut.
        """
        return int(np.lexsort((-self.duration, np.abs(self.duration - self.duration.mean())))[0])

    @cached_property
    def typical_rows(self) -> npt.NDArray[np.int64]:
        """Indices of the typical steps: all but those that are cut or unusual once. Of several kinds, the one with most
        time.

        Slow steps at the beginning are start-up, and fast ones at the beginning or the end are cut. Several others are
        part of how the run behaves: a loader that delivers in bursts, a checkpoint every few steps.
        """
        rows = np.arange(self.count) if self.cut is None else np.flatnonzero(~self.cut)
        if self.kind is not None:
            rows = rows[self.kind[rows] == np.bincount(self.kind[rows], weights=self.duration[rows]).argmax()]
        return rows[typical_of(self.duration[rows])]

    @cached_property
    def typical(self) -> Steps:
        """The typical steps alone."""
        rows = self.typical_rows
        return self if len(rows) == self.count else self.take(rows)

    def take(self, rows: npt.NDArray[np.integer]) -> Steps:
        return Steps(
            self.source,
            [self.names[row] for row in rows],
            self.start[rows],
            self.end[rows],
            self.host_start[rows],
            self.host_end[rows],
            self.thread,
            None if self.kind is None else self.kind[rows],
            None if self.cut is None else self.cut[rows],
        )


def _index(start: I8, end: I8, time: I8) -> I8:
    """Index of the interval [start, end) that contains each time, -1: none. The intervals are disjoint and sorted."""
    index = np.searchsorted(start, time, side="right") - 1
    return np.where((index >= 0) & (time < end[index]), index, -1)


def unusual(duration: I8, factor: float = UNUSUAL_FACTOR, deviations: float = UNUSUAL_DEVIATIONS) -> tuple[Mask, Mask]:
    """Which steps take far longer, and which far less time than the median step."""
    if len(duration) < MIN_COMPARED:
        return np.zeros(len(duration), bool), np.zeros(len(duration), bool)
    usual = median(duration)
    deviation = deviations * 1.4826 * median(np.abs(duration - usual))  # 1.4826: for a normal distribution
    slow = duration > max(factor * usual, usual + deviation)
    fast = duration < min(usual / factor, usual - deviation)
    return slow, fast


def typical_of(duration: I8) -> Mask:
    """Which of several steps in a row are typical: all but those that are unusual once."""
    slow, fast = unusual(duration)
    return ~(_once(slow, at_end=bool(_between(slow).any())) | _once(fast, at_end=False))


def _once(marked: Mask, *, at_end: bool) -> Mask:
    """Those at the beginning and the end; also those between the others, unless they are several. `at_end`: those at
    the end recur like those between the others.
    """
    recurring = marked & (np.cumsum(~marked) > 0) if at_end else _between(marked)
    return marked if recurring.sum() < MIN_RECURRING else marked & ~recurring


def _between(marked: Mask) -> Mask:
    """Those after the first of the others and before the last."""
    others = np.flatnonzero(~marked)
    place = np.arange(len(marked))
    return np.asarray(marked & (place > others[0]) & (place < others[-1]))


def usual_interval(steps: I8) -> tuple[int, float]:
    """The most frequent distance between neighbors in an increasing list of step numbers, and the share (0..1) of the
    distances that equal it. The smallest if several are as frequent; (0, 0.0) for fewer than two steps.
    """
    if len(steps) < 2:
        return 0, 0.0
    distances, counts = np.unique(np.diff(steps), return_counts=True)
    return int(distances[counts.argmax()]), float(counts.max() / counts.sum())


def find_steps(marks: Marks, launched: I8, ended: I8, earlier_work: Intervals = EMPTY) -> Steps:
    """The steps from completion to completion. `launched` and `ended`: when the host launched each piece of the
    device's work, and when it ended; shape (pieces,), ns. In `earlier_work`, the device completed work that was
    launched before all marks.

    A mark is no step if its work completes no later than the work of the mark before. Its time belongs to that step.
    """
    border = np.append(marks.start, marks.end.max())
    order = np.argsort(launched, kind="stable")
    latest = np.maximum.accumulate(np.concatenate((border[:1], ended[order])))
    latest = np.maximum(latest, earlier_work.end.max(initial=border[0]))
    complete = np.maximum(border, latest[np.searchsorted(launched[order], border, side="left")])
    if complete[-1] == complete[0]:  # the device only completes what was launched before: the host is all there is
        complete = border
    rows = np.flatnonzero(complete[1:] > complete[:-1])
    host_end = np.append(border[rows[1:]], border[-1])
    names = [marks.names[row] for row in rows]
    at = complete[rows], complete[rows + 1], border[rows], host_end
    steps = Steps(marks.source, names, *at, marks.thread, None if marks.kind is None else marks.kind[rows])
    whole = np.flatnonzero(~marks.partial[rows]) if marks.partial is not None else np.arange(len(rows))
    return steps.take(whole) if len(whole) else steps


def cut_by_the_profiler(steps: Steps, ops: Spans, work: Spans) -> Mask | None:
    """Which steps the profiler's start or stop distorts; None if they are too few to do without. `ops`: of the host,
    `work`: of the device.

    The first step is cut if the recording began inside it, or while the device was far more behind than between steps.
    The last one ends with the stop of the profiler if nothing happens at its end for longer than in the others. Of few
    steps, it is only left out if it also has fewer operators: the file ends half way through it.
    """
    if steps.count < 2:
        return None
    spare = MAX_CUT * median(steps.duration)
    done = np.searchsorted(ops.start, steps.host_end) - np.searchsorted(ops.start, steps.host_start)
    least = int(done[1:].min())
    alike = least >= FEWER * int(done[1:].max())
    behind = steps.start - steps.host_start
    ended = np.maximum(_last_end(ops, steps.host_start, steps.host_end), _last_end(work, steps.start, steps.end))
    after = steps.end - ended
    few = steps.count < MIN_WITH_EDGES
    cut = np.zeros(steps.count, bool)
    cut[0] = not few and (behind[0] > behind[1:].max() + spare or (alike and done[0] < FEWER * least))
    cut[-1] = after[-1] > after[:-1].max() + spare and (not few or done[-1] < FEWER * done[:-1].min())
    return cut


def _last_end(table: Spans, start: I8, end: I8) -> I8:
    """When the last of what began in each [start, end) ended; where nothing did, its start. Shape (len(start),), ns."""
    first, last = np.searchsorted(table.start, start), np.searchsorted(table.start, end)
    rows = zip(first.tolist(), last.tolist(), start.tolist(), strict=True)
    return np.array([int((table.start[a:b] + table.duration[a:b]).max(initial=begin)) for a, b, begin in rows])
