"""The measured steps: where each begins and ends, and which thread runs the training loop.

A step goes from completion to completion: it ends when the host has reached its mark and the device has completed all
that was launched before. Where the host waits for the device in every step, that is the mark; where the host runs
ahead, its marks say nothing about how long a step takes.
"""

from __future__ import annotations

import re
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.arrays.intervals import EMPTY, Intervals, union
from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.tables import json_values
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.serving import serving_marks
from traceopt.analyzer.vocabulary import op_names

PROFILER_STEP = re.compile(r"ProfilerStep\s?#\d+")

# A repeating annotation is taken for the step if it occurs this often, covers this much of the trace, and its durations
# are similar; otherwise it could be a section of the model.
MIN_REPEATS = 3
MIN_COVERAGE = 0.6
MAX_SPREAD = 3.0

MAX_UNLIKE = 0.1  # of the operators between two updates of the only optimizer: more or fewer are another kind of step

# A step is unusual if it takes this many times longer (or shorter) than the median step, by more than this many robust
# standard deviations.
UNUSUAL_FACTOR = 1.2
UNUSUAL_DEVIATIONS = 3.0
MAX_BETWEEN = 0.05  # of a step: more time between two annotations than this belongs to the loop
EVALUATION = "traceopt: evaluation mode"  # the range opened by capture/recording/profiler_session.py
MAX_CUT = 0.05  # of a step: with less of it on the other side of an evaluation, the step is whole
MIN_COMPARED = 3  # with fewer steps, none can be called unusual
MIN_RECURRING = 2  # unusual steps that are no accident

Source = Literal["profiler_step", "annotation", "window"]


class Marks(Struct, frozen=True):
    """What marks the steps on the training thread: `start` and `end` of each, ns, shape (count,), in order of time."""

    source: Source
    names: list[str]
    start: I8
    end: I8
    thread: int  # index into trace.threads, -1: unknown
    kind: I8 | None = None  # number of the kind of each step, where there are several, as prefill and decode
    partial: Mask | None = None  # which are not a whole step: cut off, or an evaluation; None: all are whole

    @property
    def whole(self) -> Marks:
        """The marks of whole steps."""
        return self if self.partial is None else self.take(np.flatnonzero(~self.partial))

    def take(self, rows: npt.NDArray[np.integer]) -> Marks:
        return replace(
            self,
            names=[self.names[row] for row in rows],
            start=self.start[rows],
            end=self.end[rows],
            kind=None if self.kind is None else self.kind[rows],
            partial=None if self.partial is None else self.partial[rows],
        )


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
        """Indices of the typical steps: all but those that are unusual once. Of several kinds, the one with most time.

        Slow steps at the beginning are start-up, and fast ones at the beginning or the end are cut. Several others are
        part of how the run behaves: a loader that delivers in bursts, a checkpoint every few steps.
        """
        rows = np.arange(self.count)
        if self.kind is not None:
            rows = np.flatnonzero(self.kind == np.bincount(self.kind, weights=self.duration).argmax())
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


def find_marks(trace: Trace) -> Marks:
    """The marks of the steps: a serving engine's annotations, else ProfilerStep annotations, else an annotation that
    repeats over the trace, else DataLoader calls, else updates of the only optimizer, else the whole trace as one step.
    """
    table = trace.annotations
    marked = np.array([PROFILER_STEP.match(name) is not None for name in trace.names], bool)
    rows = np.flatnonzero(marked[table.name] & (table.duration > 0)) if len(table) else np.empty(0, np.int64)
    serving = serving_marks(trace)
    if serving is not None and len(serving.steps) >= len(rows):  # a step of the profiler may hold many of the engine's
        return Marks("annotation", serving.names, serving.start, serving.end, serving.thread, serving.kind)
    if len(rows):
        rows = _without_repeats(trace, rows)
        names = [trace.names[code] for code in table.name[rows]]
        marks = Marks("profiler_step", names, table.start[rows], table.end_of(rows), int(table.thread[rows[0]]))
        return _without_evaluations(_without_cut_steps(marks, trace), trace)
    rows = _repeating_annotation(trace)
    if len(rows):
        names = [f"{trace.names[code]} {i}" for i, code in enumerate(table.name[rows], 1)]
        return _up_to_the_next(
            Marks("annotation", names, table.start[rows], table.end_of(rows), int(table.thread[rows[0]]))
        )
    rows = _loader_calls(trace)
    if len(rows):
        starts = table.start[rows]
        names = [f"DataLoader iteration {i}" for i in range(1, len(rows))]
        return Marks("annotation", names, starts[:-1], starts[1:], int(table.thread[rows[0]]))
    rows = _optimizer_updates(trace)
    if len(rows):
        ends = table.end_of(rows)
        names = [f"{trace.names[table.name[rows[0]]]} {i}" for i in range(2, len(rows) + 1)]
        return Marks("annotation", names, ends[:-1], ends[1:], int(table.thread[rows[0]]))
    return whole_trace(trace)


def whole_trace(trace: Trace) -> Marks:
    """One mark over the whole trace, where nothing shows the steps."""
    start, end = _window(trace)
    return Marks("window", ["whole trace"], np.array([start]), np.array([max(start + 1, end)]), _training_thread(trace))


def outlasted(marks: Marks, started: I8, ended: I8) -> bool:
    """Whether the device works on after the last mark for longer than a step takes on the host, so that the marks do
    not show how long the steps take. `started`, `ended`: of each piece of the device's work, ns, shape (pieces,).
    """
    after = union(np.maximum(started, marks.end.max()), np.maximum(ended, marks.end.max()))
    return bool(after.total > float((marks.end - marks.start).mean()))


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


def without_empty_end(marks: Marks, started: I8) -> Marks:
    """The marks without a last one that holds no work, where the others do: it was opened after the last step.

    `started`: when work began, ns.
    """
    counts = np.diff(np.searchsorted(np.sort(started), np.append(marks.start, marks.end[-1])))
    empty = len(counts) > 1 and counts[-1] == 0 and counts[:-1].all()
    return marks.take(np.arange(len(counts) - 1)) if empty else marks


def _up_to_the_next(marks: Marks) -> Marks:
    """Marks that end where the next one starts, without the last, if time between the marks is part of the steps."""
    period = (marks.start[-1] - marks.start[0]) / (len(marks.start) - 1)
    between = marks.start[1:] - marks.end[:-1]
    if between.mean() < MAX_BETWEEN * period:
        return marks
    shorter = marks.take(np.arange(len(marks.start) - 1))
    return replace(shorter, end=marks.start[1:])


def _without_cut_steps(marks: Marks, trace: Trace) -> Marks:
    """Marks the steps of which `traceopt run` says that they are not whole, unless none is."""
    cut = _numbers(trace, "partial_steps")
    partial = np.array([name.rpartition("#")[2] in cut for name in marks.names], bool)
    return replace(marks, partial=partial) if partial.any() and not partial.all() else marks


def _numbers(trace: Trace, key: str) -> set[str]:
    """Numbers that `traceopt run` notes about the cycle under this key."""
    numbers = json_values.table(json_values.table(trace.meta.header.get("traceopt")).get("cycle")).get(key)
    return {str(number) for number in numbers if type(number) is int} if isinstance(numbers, list) else set()


def _without_evaluations(marks: Marks, trace: Trace) -> Marks:
    """The marks without the evaluations inside them. A step that an evaluation splits in the middle is not whole."""
    wanted = {f"{EVALUATION} {number}" for number in _numbers(trace, "evaluations")}
    rows = np.flatnonzero(np.array([name in wanted for name in trace.names] or [False])[trace.annotations.name])
    rows = rows[trace.annotations.thread[rows] == marks.thread]
    if not len(rows):
        return marks
    evaluations = union(trace.annotations.start[rows], trace.annotations.end_of(rows))
    names: list[str] = []
    pieces: list[tuple[int, int, bool]] = []  # start, end, and whether it is no whole step
    cut = marks.partial if marks.partial is not None else np.zeros(len(marks.names), bool)
    for name, start, end, partial in zip(marks.names, marks.start.tolist(), marks.end.tolist(), cut, strict=True):
        first, last = np.searchsorted(evaluations.end, start, "right"), np.searchsorted(evaluations.start, end)
        inside = np.stack((evaluations.start[first:last], evaluations.end[first:last]), 1).clip(start, end)
        between = [start, *inside.ravel().tolist(), end]
        trained = sum(between[i + 1] - between[i] for i in range(0, len(between), 2))
        for number, (begin, stop) in enumerate(pairwise(between)):
            whole = not partial and number % 2 == 0 and stop - begin >= (1 - MAX_CUT) * trained
            if stop > begin:
                names.append(name)
                pieces.append((begin, stop, not whole))
    starts, stops, partials = (np.array(column) for column in zip(*pieces, strict=True))
    return replace(marks, names=names, start=starts, end=stops, partial=partials) if not partials.all() else marks


def _without_repeats(trace: Trace, rows: I8) -> I8:
    """One row per step: a file that merges threads or ranks may name a step twice; uses one thread's first."""
    thread = trace.annotations.thread[rows]
    rows = rows[thread == np.bincount(thread).argmax()]
    _, first = np.unique(trace.annotations.name[rows], return_index=True)
    return np.asarray(rows[np.sort(first)])


def _repeating_annotation(trace: Trace) -> I8:
    """Rows of the annotation that stands for the step; empty if there is none."""
    table = trace.annotations
    span = trace.duration_ns
    best, best_cover = np.empty(0, np.int64), MIN_COVERAGE * span
    if not len(table):
        return best
    part = np.array([_is_part_of_a_step(name) for name in trace.names], bool)
    key = table.name.astype(np.int64) * (int(table.thread.max()) + 1) + table.thread
    keys, counts = np.unique(key, return_counts=True)
    for wanted in keys[counts >= MIN_REPEATS]:  # a few dozen names
        rows = np.flatnonzero((key == wanted) & (table.duration > 0))
        if len(rows) < MIN_REPEATS or part[table.name[rows[0]]]:
            continue
        duration = table.duration[rows]
        disjoint = (table.start[rows][1:] >= table.end_of(rows)[:-1]).all()
        even = duration.max() <= MAX_SPREAD * median(duration)
        cover = int(table.end_of(rows)[-1] - table.start[rows][0])
        filled = duration.sum() >= MIN_COVERAGE * cover
        if disjoint and even and filled and cover > best_cover:
            best, best_cover = rows, cover
    return best


def _loader_calls(trace: Trace) -> I8:
    """Rows of the DataLoader calls of the thread with the most of them; an iteration goes from one call to the next.

    Empty if they are few or uneven. The time after the last call is left out, because it may be cut off.
    """
    table = trace.annotations
    named = np.array([op_names.is_dataloader(name) for name in trace.names], bool)
    rows = np.flatnonzero(named[table.name]) if len(table) else np.empty(0, np.int64)
    if not len(rows):
        return rows
    rows = rows[table.thread[rows] == np.bincount(table.thread[rows]).argmax()]
    rows = rows[np.append(True, np.diff(table.start[rows]) > 0)]  # two that begin at the same time enclose no step
    length = np.diff(table.start[rows])
    even = len(length) >= MIN_REPEATS and 0 < length.max() <= MAX_SPREAD * median(length)
    return np.asarray(rows if even else rows[:0])


def _optimizer_updates(trace: Trace) -> I8:
    """Rows of the optimizer's updates; a step goes from the end of one to the end of the next.

    Empty unless all are of one optimizer, and the steps are even, run about the same number of operators, and cover
    most of the trace: two models that train in turn would be half a step each. The time before the first update is left
    out, because the recording may begin inside that step.
    """
    table = trace.annotations
    named = np.array([op_names.is_optimizer_step(name) for name in trace.names] or [False], bool)
    rows = np.flatnonzero(named[table.name] & (table.duration > 0))
    inside = np.maximum.accumulate(table.end_of(rows))[:-1] > table.start[rows][1:]  # an optimizer that wraps another
    rows = rows[np.append(True, ~inside)[: len(rows)]]
    one = len({*table.name[rows].tolist()}) == len({*table.thread[rows].tolist()}) == 1
    if len(rows) <= MIN_REPEATS or not one:
        return np.empty(0, np.int64)
    ends = table.end_of(rows)
    length, work = np.diff(ends), np.diff(np.searchsorted(trace.ops.start, ends))
    even = bool(length.max() <= MAX_SPREAD * median(length))
    alike = np.abs(work - median(work)).max() <= MAX_UNLIKE * median(work)
    covers = length.sum() >= MIN_COVERAGE * trace.duration_ns
    return np.asarray(rows if even and alike and covers else rows[:0])


def _is_of_the_loop(name: str) -> bool:
    """Data loading and the optimizer, which the training loop itself runs once per step."""
    return op_names.is_dataloader(name) or op_names.is_optimizer_step(name) or op_names.is_zero_grad(name)


def _is_part_of_a_step(name: str) -> bool:
    """Data loading, the optimizer and collectives repeat once per step but are not the step."""
    return _is_of_the_loop(name) or op_names.is_collective_annotation(name)


def _window(trace: Trace) -> tuple[int, int]:
    """The whole trace. Work of the device that ended before the host's first event is left over from before the
    recording and lies outside, unless it is most of the work.
    """
    gpu = trace.gpu
    tables = [t for t in (gpu, trace.runtime, trace.ops, trace.annotations, trace.python) if len(t)]
    start = min((int(t.start.min()) for t in tables), default=0)
    end = max((int(t.end.max()) for t in tables), default=1)
    if len(gpu) and len(trace.runtime):
        began = min(int(t.start.min()) for t in tables if t is not gpu)
        if 2 * gpu.duration[gpu.end < began].sum() < gpu.duration.sum():
            start = began
    return start, end


def _training_thread(trace: Trace) -> int:
    """The thread that loads data or runs the optimizer; else the one with the most launches, else with the most
    operators.

    Autograd's own thread may launch more than the thread of the training loop.
    """
    loop = np.array([_is_of_the_loop(name) for name in trace.names] or [False])
    annotations = trace.annotations
    for table in (annotations.take(loop[annotations.name]), trace.runtime, trace.ops, trace.python):
        if len(table):
            return int(np.bincount(table.thread).argmax())
    return -1
