"""The marks of the steps on the host: of a serving engine, of the profiler, or what repeats in a loop."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.arrays.intervals import union
from traceopt.analyzer.tables import json_values
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.marks.loops import Loop, LoopSource, find_loop, is_of_the_loop
from traceopt.analyzer.timeline.serving import serving_marks

PROFILER_STEP = re.compile(r"ProfilerStep\s?#\d+")
EVALUATION = "traceopt: evaluation mode"  # the range opened by capture/recording/profiler_session.py
MAX_CUT = 0.05  # of a step: a piece of it that is no larger counts for nothing

Source = Literal["profiler_step", LoopSource, "window"]


class Marks(Struct, frozen=True):
    """What marks the steps on the training thread: `start` and `end` of each, ns, shape (count,), in order of time."""

    source: Source
    names: list[str]
    start: I8
    end: I8
    thread: int  # index into trace.threads, -1: unknown
    kind: I8 | None = None  # number of the kind of each step, where there are several, as prefill and decode
    partial: Mask | None = None  # which are not a whole step: cut off, or an evaluation; None: all are whole
    loop: Loop | None = None  # that shows the steps, if no annotation of the profiler or of an engine does

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


def find_marks(trace: Trace) -> Marks:
    """The marks of the steps: a serving engine's annotations, else ProfilerStep annotations, else the iterations of a
    loop, else the whole trace as one step.
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
    loop = find_loop(trace)
    if loop is not None:
        names = [f"{loop.call} {number}" for number in range(1, len(loop.border))]
        return Marks(loop.source, names, loop.border[:-1], loop.border[1:], loop.thread, loop=loop)
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


def without_empty_end(marks: Marks, started: I8) -> Marks:
    """The marks without a last one that holds next to no work, where the others do: it was opened after the last step.

    `started`: when work began, ns.
    """
    counts = np.diff(np.searchsorted(np.sort(started), np.append(marks.start, marks.end[-1])))
    empty = len(counts) > 1 and counts[:-1].all() and counts[-1] <= MAX_CUT * counts[:-1].min()
    return marks.take(np.arange(len(counts) - 1)) if empty else marks


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
    loop = np.array([is_of_the_loop(name) for name in trace.names] or [False])
    annotations = trace.annotations
    for table in (annotations.take(loop[annotations.name]), trace.runtime, trace.ops, trace.python):
        if len(table):
            return int(np.bincount(table.thread).argmax())
    return -1
