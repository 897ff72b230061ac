"""Joins the two cycles of a run into one trace: the times of the timing cycle, and what only the detail cycle recorded.

Recording shapes, memory and Python frames distorts the times of a cycle. So each step of the timing cycle borrows them
from a step of the detail cycle: matching operators get their shapes, and frames and memory samples are moved to the
timing cycle's clock, interpolated between the starts and ends of operators. A garbage collection may interrupt any
function of either cycle, so this clock stands still in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.arrays.intervals import Intervals, union
from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.recordings.operator_alignment import Calls, align, count_same
from traceopt.analyzer.recordings.same_work import SameWork
from traceopt.analyzer.tables.schema import I4, I8, Mask, MemoryTable, PythonTable, T
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.marks.marks import PROFILER_STEP, Marks, find_marks
from traceopt.analyzer.vocabulary.op_names import is_collection

_ALIKE = 0.8  # of the operators of two steps have a counterpart, if one step may borrow the frames of the other
_USUAL_SPREAD = 4  # steps, at least, that show how many operators a step usually has
_SLOWER = 1.5  # times the steps of the timing cycle: slower steps show other shares of time than the training has
_OP_TEXTS = ("dims", "types", "concrete", "stack")
_ANNOTATION_TEXTS = ("dims", "types", "stack")


def join_cycles(timing: Trace, detail: Trace) -> Trace:
    """The timing cycle's trace with shapes, frames and memory from the detail cycle; `meta.detail` describes the
    latter.

    The shapes of operators that worked on other sizes are `resized`: they say nothing of the times.

    What happened in only one cycle has no counterpart: a pause in the timing cycle shows the frames that the detail
    cycle has at that point, stretched in proportion. Where one cycle has operators that the other does not have, no
    frames are borrowed; nor are they from a step that is mostly different (one that evaluates, for example). Steps
    whose loops usually run a different number of times may differ that much, and so may steps that run the same
    operators in another order (sequences of other lengths).
    """
    names = _Union(timing.names, detail.names)
    texts = _Union(timing.texts, detail.texts)
    threads = _Union(timing.threads, detail.threads)
    detail = replace(
        detail,
        names=names.values,
        ops=_renamed(detail.ops, names, texts, threads, _OP_TEXTS),
        annotations=_renamed(detail.annotations, names, texts, threads, _ANNOTATION_TEXTS),
        python=_renamed(detail.python, names, texts, threads),
        memory=replace(detail.memory, thread=threads.of_second[detail.memory.thread]),
        runtime=_renamed(detail.runtime, names, texts, threads),
        gpu=replace(detail.gpu, name=names.of_second[detail.gpu.name]),
    )
    timing = replace(timing, names=names.values, texts=texts.values, threads=threads.values)
    ops = {column: getattr(timing.ops, column).copy() for column in _OP_TEXTS}
    annotations = {column: getattr(timing.annotations, column).copy() for column in _ANNOTATION_TEXTS}
    python: list[PythonTable] = [timing.python]
    memory: list[MemoryTable] = [timing.memory]
    used: set[int] = set()  # detail steps whose memory samples are placed: each sample can appear only once
    work = SameWork.of(timing, detail)
    resized = [timing.resized]
    for step in _pair_steps(timing, detail):
        for column, values in ops.items():
            values[step.ops[0]] = getattr(detail.ops, column)[step.ops[1]]
        resized.append(step.ops[0][~work.is_same(*step.ops)])
        for column, values in annotations.items():
            values[step.annotations[0]] = getattr(detail.annotations, column)[step.annotations[1]]
        python.append(step.frames(detail.python))
        if step.alike and step.borrowed not in used:
            memory.append(step.samples(detail.memory))
            used.add(step.borrowed)
    return replace(
        timing,
        meta=replace(timing.meta, detail=detail.meta),
        ops=replace(timing.ops, **ops),
        annotations=replace(timing.annotations, **annotations),
        python=_in_order(python, "start"),
        memory=_in_order(memory, "time"),
        resized=np.concatenate(resized),
    )


def can_replace(detail: Trace, timing: Trace) -> bool:
    """Whether the detail cycle can be analyzed instead of the timing cycle: its steps run the same operators, each any
    number of times, and do not take far longer.
    """
    operators, durations = [], []
    for trace in (timing, detail):
        steps, marks = find_marks(trace).whole, _Marks.of(trace)
        borders = (_borders(steps, index) for index in range(len(steps.start)))
        codes = [marks.name[marks.within(steps.thread, *border)] for border in borders]
        if not codes:
            return False
        operators.append({trace.names[code] for code in distinct_values(np.concatenate(codes)).tolist()})
        durations.append(median(steps.end - steps.start))
    left, right = operators
    return len(left & right) >= _ALIKE * len(left | right) > 0 and durations[1] <= _SLOWER * durations[0]


class _Union:
    """Merges two dictionaries: the codes of the first stay, `of_second` maps the codes of the second (-1 to -1)."""

    def __init__(self, first: list[Any], second: list[Any]) -> None:
        known = {value: code for code, value in enumerate(first)}
        codes = [known.setdefault(value, len(known)) for value in second]
        self.values = list(known)
        self.of_second = np.array([*codes, -1], np.int32)


def _renamed(table: T, names: _Union, texts: _Union, threads: _Union, text_columns: tuple[str, ...] = ()) -> T:
    columns: dict[str, Any] = {column: texts.of_second[getattr(table, column)] for column in text_columns}
    columns["name"] = names.of_second[table.name]  # type: ignore[attr-defined]  # T is one of the thread tables
    columns["thread"] = threads.of_second[table.thread]  # type: ignore[attr-defined]
    return replace(table, **columns)


def _in_order(tables: list[T], time: str) -> T:
    joined = type(tables[0])(
        **{column: np.concatenate([getattr(table, column) for table in tables]) for column in tables[0].SCHEMA}
    )
    return joined.take(np.argsort(getattr(joined, time), kind="stable"))


class _Marks(Struct, frozen=True, dict=True):
    """Operators and annotations of all threads, sorted by thread and start. In `row`, operators are numbered before
    annotations.
    """

    thread: I4
    start: I8
    end: I8
    name: I4
    row: I8
    op_count: int
    collects: Mask  # which are garbage collections

    @classmethod
    def of(cls, trace: Trace) -> _Marks:
        ops, annotations = trace.ops, trace.annotations
        steps = np.array([PROFILER_STEP.match(name) is not None for name in trace.names] or [False])
        rows = np.flatnonzero(~steps[annotations.name])
        start, end, name, thread = (
            np.concatenate((getattr(ops, column), getattr(annotations, column)[rows]))
            for column in ("start", "end", "name", "thread")
        )
        row = np.concatenate((np.arange(len(ops)), rows + len(ops)))
        order = np.lexsort((start - end, start, thread))
        collects = np.array([is_collection(name) for name in trace.names] or [False])[name]
        return cls(thread[order], start[order], end[order], name[order], row[order], len(ops), collects[order])

    @cached_property
    def collections(self) -> Intervals:
        return union(self.start[self.collects], self.end[self.collects])

    def within(self, thread: int, start: int, end: int) -> slice:
        """The marks of a thread that begin in [start, end)."""
        first, last = np.searchsorted(self.thread, [thread, thread + 1])
        return slice(*(np.searchsorted(self.start[first:last], [start, end]) + first))

    def calls(self, rows: slice) -> Calls:
        after = np.searchsorted(self.start[rows], self.end[rows])
        return Calls(self.name[rows], np.maximum(after - np.arange(len(after)) - 1, 0))


class _Clock(Struct, frozen=True):
    """Maps times of a detail step to times of the timing step; both increase. It stands still in the collections of
    each, given in the same order.
    """

    here: I8
    there: I8
    collections: tuple[Intervals, Intervals]
    marks: I8  # starts of the matched marks of the detail step, with its borders
    uneven: Mask  # after each of them but the last, whether unmatched operators of either step follow

    def has_no_counterpart(self, start: I8, end: I8) -> Mask:
        """Which times of the detail step lie between two matched marks where one of the steps did something else."""
        after = np.clip(np.searchsorted(self.marks, start, side="right") - 1, 0, len(self.uneven) - 1)
        return np.asarray(self.uneven[after] & (start >= self.marks[after]) & (end <= self.marks[after + 1]))

    def __call__(self, time: I8) -> I8:
        cut, added = self.collections
        moved = np.interp(_without(cut, time), _without(cut, self.here), _without(added, self.there))
        before = np.searchsorted(_without(added, added.start), moved)
        whole: I8 = np.rint(moved).astype(np.int64) + np.append(0, np.cumsum(added.length))[before]
        return whole


def _without(pauses: Intervals, time: I8) -> I8:
    """The time if there were no pauses."""
    return time - pauses.covered_before(time)


class _StepPair(Struct, frozen=True):
    """A step of the timing cycle and the step of the detail cycle that it borrows from; rows are pairs (timing,
    detail).

    A range that is an operator in one cycle and an annotation in the other, such as Inductor's
    `## Call CompiledFxGraph`, aligns the clocks and lends nothing.
    """

    borrowed: int
    start: int  # of the borrowed step
    end: int
    ops: tuple[I8, I8]
    annotations: tuple[I8, I8]
    clocks: dict[int, _Clock]  # by thread
    alike: bool  # whether the steps do the same

    def frames(self, table: PythonTable) -> PythonTable:
        """The frames that run in the step, cut at its borders, on the timing cycle's clock; none if the steps are not
        alike.
        """
        inside = (table.start < self.end) & (table.end > self.start) & self.alike
        for thread, clock in self.clocks.items():
            inside &= (table.thread != thread) | ~clock.has_no_counterpart(table.start, table.end)
        table = table.take(np.flatnonzero(inside))
        start = self._moved(np.maximum(table.start, self.start), table.thread)
        end = self._moved(np.minimum(table.end, self.end), table.thread)
        return replace(table, start=start, duration=end - start)

    def samples(self, table: MemoryTable) -> MemoryTable:
        table = table.take(np.flatnonzero((table.time >= self.start) & (table.time < self.end)))
        return replace(table, time=self._moved(table.time, table.thread))

    def _moved(self, time: I8, threads: I4) -> I8:
        out = np.empty(len(time), np.int64)
        for thread, clock in self.clocks.items():
            mine = threads == thread
            out[mine] = clock(time[mine])
        return out


def _pair_steps(timing: Trace, detail: Trace) -> Iterator[_StepPair]:
    """Pairs each step of the timing cycle with the most similar step of the detail cycle."""
    steps, others = find_marks(timing).whole, find_marks(detail).whole
    marks, other_marks = _Marks.of(timing), _Marks.of(detail)
    there = [_borders(others, index) for index in range(len(others.start))]
    patterns = [other_marks.name[other_marks.within(others.thread, *borders)] for borders in there]
    here_names = [marks.name[marks.within(steps.thread, *_borders(steps, index))] for index in range(len(steps.start))]
    usual = _usual_share([len(names) for names in here_names])
    for index, names in enumerate(here_names):
        here = _borders(steps, index)
        # Among equally similar steps take the one with the same index, so that neighbors borrow different memory
        # samples.
        similarity = [(*_similarity(names, pattern), place == index) for place, pattern in enumerate(patterns)]
        best = similarity.index(max(similarity))
        differing, longer = -similarity[best][0], max(len(names), len(patterns[best]))
        same_operators = len(names) + len(patterns[best]) - differing >= 2 * _ALIKE * longer
        yield _pair(marks, other_marks, range(len(timing.threads)), here, there[best], best, usual, same_operators)


def _usual_share(operators: list[int]) -> float:
    """Operators of a usual small step as a share of those of a usual large one; the smallest and the largest step are
    not usual. 1 if all steps have as many, or too few steps are known.
    """
    usual = sorted(operators)[1:-1]
    return usual[0] / max(1, usual[-1]) if len(operators) >= _USUAL_SPREAD else 1.0


def _borders(marks: Marks, index: int) -> tuple[int, int]:
    return int(marks.start[index]), int(marks.end[index])


def _similarity(left: I4, right: I4) -> tuple[int, int]:
    """How few operators only one side has, in any order; then, the length of the common prefix."""
    most = max(left.max(initial=0), right.max(initial=0)) + 1
    differing = np.abs(np.bincount(left, minlength=most) - np.bincount(right, minlength=most)).sum()
    shorter = min(len(left), len(right))
    return -int(differing), count_same(left[:shorter], right[:shorter])


def _pair(
    marks: _Marks,
    others: _Marks,
    threads: range,
    here: tuple[int, int],
    there: tuple[int, int],
    borrowed: int,
    usual_share: float,
    same_operators: bool,
) -> _StepPair:
    rows: list[I8] = []
    other_rows: list[I8] = []
    clocks = {}
    most = least = 0
    for thread in threads:
        own, theirs = marks.within(thread, *here), others.within(thread, *there)
        left, right = align(marks.calls(own), others.calls(theirs))
        rows.append(marks.row[own][left])
        other_rows.append(others.row[theirs][right])
        times = np.concatenate((others.start[theirs][right], others.end[theirs][right], there))
        own_times = np.concatenate((marks.start[own][left], marks.end[own][left], here))
        order = np.lexsort((own_times, times))
        rising = np.maximum.accumulate(np.clip(own_times[order], *here))
        matched = np.concatenate((there[:1], others.start[theirs][right], there[1:]))
        uneven = _skipped(left, ~marks.collects[own]) | _skipped(right, ~others.collects[theirs])
        collections = others.collections, marks.collections
        clocks[thread] = _Clock(times[order], rising, collections, matched, uneven)
        most += max(own.stop - own.start, theirs.stop - theirs.start)
        least += min(own.stop - own.start, theirs.stop - theirs.start)
    row, other_row = np.concatenate(rows), np.concatenate(other_rows)
    is_op, other_is_op = row < marks.op_count, other_row < others.op_count
    both_ops, both_annotations = is_op & other_is_op, ~(is_op | other_is_op)
    return _StepPair(
        borrowed,
        *there,
        ops=(row[both_ops], other_row[both_ops]),
        annotations=(row[both_annotations] - marks.op_count, other_row[both_annotations] - others.op_count),
        clocks=clocks,
        alike=same_operators or len(row) >= _ALIKE * max(usual_share * most, least),
    )


def _skipped(matched: I8, counts: Mask) -> Mask:
    """Whether unmatched marks that count follow the border and each matched mark. Shape (len(matched) + 1,)."""
    unmatched = counts.copy()
    unmatched[matched] = False
    before = np.append(0, np.cumsum(unmatched))
    return np.diff(before[np.concatenate(([0], matched, [len(counts)]))]) > 0
