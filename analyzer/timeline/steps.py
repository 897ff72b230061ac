"""The measured steps: where each begins and ends, and which thread runs the training loop."""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.vocabulary import op_names

PROFILER_STEP = re.compile(r"ProfilerStep\s?#\d+")

# A repeating annotation is taken for the step if it occurs this often, covers this much of the trace, and its durations
# are similar; otherwise it could be a section of the model.
MIN_REPEATS = 3
MIN_COVERAGE = 0.6
MAX_SPREAD = 3.0

STUMP_SHARE = 0.1  # of the next longer step


class Steps(Struct, frozen=True):
    """`start` and `duration` of the measured steps on the training thread, ns, shape (count,), in order of time.

    The window goes from the first start to the last end. `edges`, shape (count + 1,), cut it into one piece per step;
    time between two steps belongs to the earlier one.
    """

    source: Literal["profiler_step", "annotation", "window"]
    names: list[str]
    start: I8
    duration: I8
    thread: int  # index into trace.threads, -1: unknown

    @property
    def count(self) -> int:
        return len(self.start)

    @property
    def window(self) -> tuple[int, int]:
        return int(self.start[0]), int((self.start + self.duration).max())

    @property
    def window_ns(self) -> int:
        return max(1, self.window[1] - self.window[0])

    @property
    def edges(self) -> I8:
        return np.append(self.start, self.window[1])

    def step_of(self, time: I8) -> I8:
        """Index of the step that contains each time; -1 before the window, `count` after it."""
        index = np.searchsorted(self.edges, time, side="right") - 1
        return np.where(time >= self.window[1], self.count, index)

    def contain(self, time: I8, chosen: npt.NDArray[np.integer] | None = None) -> npt.NDArray[np.bool_]:
        """Whether each time is inside one of the chosen steps (indices), or inside any step. Shape (len(time),)."""
        step = self.step_of(time)
        inside = (step >= 0) & (step < self.count)
        return np.asarray(inside if chosen is None else inside & np.isin(step, chosen))

    def per_step(self, step: I8, amount: I8) -> I8:
        """Sums of the amounts by step, ignoring those outside the window. Shape (count,)."""
        inside = (step >= 0) & (step < self.count)
        return np.bincount(step[inside], weights=amount[inside], minlength=self.count).astype(np.int64)

    @property
    def median_index(self) -> int:
        """The step with the median duration; the shorter of two, unless it is the rest of a cropped step."""
        order = np.argsort(self.duration, kind="stable")
        shorter, longer = order[(self.count - 1) // 2], order[self.count // 2]
        return int(longer if self.duration[shorter] < STUMP_SHARE * self.duration[longer] else shorter)


def usual_interval(steps: I8) -> tuple[int, float]:
    """The most frequent distance between neighbours in an increasing list of step numbers, and the share (0..1) of the
    distances that equal it. The smallest if several are as frequent; (0, 0.0) for fewer than two steps.
    """
    if len(steps) < 2:
        return 0, 0.0
    distances, counts = np.unique(np.diff(steps), return_counts=True)
    return int(distances[counts.argmax()]), float(counts.max() / counts.sum())


def find_steps(trace: Trace) -> Steps:
    """The steps from ProfilerStep annotations, else from an annotation that repeats over the trace, else from
    DataLoader calls, else the whole trace as one window.
    """
    table = trace.annotations
    marked = np.array([PROFILER_STEP.match(name) is not None for name in trace.names], bool)
    rows = np.flatnonzero(marked[table.name] & (table.duration > 0)) if len(table) else np.empty(0, np.int64)
    if len(rows):
        rows = _without_repeats(trace, rows)
        names = [trace.names[code] for code in table.name[rows]]
        return Steps("profiler_step", names, table.start[rows], table.duration[rows], int(table.thread[rows[0]]))
    rows = _repeating_annotation(trace)
    if len(rows):
        names = [f"{trace.names[code]} {i}" for i, code in enumerate(table.name[rows], 1)]
        return Steps("annotation", names, table.start[rows], table.duration[rows], int(table.thread[rows[0]]))
    rows = _loader_calls(trace)
    if len(rows):
        starts = table.start[rows]
        names = [f"DataLoader iteration {i}" for i in range(1, len(rows))]
        return Steps("annotation", names, starts[:-1], np.diff(starts), int(table.thread[rows[0]]))
    start, end = _window(trace)
    return Steps("window", ["whole trace"], np.array([start]), np.array([max(1, end - start)]), _training_thread(trace))


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


def _is_of_the_loop(name: str) -> bool:
    """Data loading and the optimizer, which the training loop itself runs once per step."""
    return op_names.is_dataloader(name) or op_names.is_optimizer_step(name) or op_names.is_zero_grad(name)


def _is_part_of_a_step(name: str) -> bool:
    """Data loading, the optimizer and collectives repeat once per step but are not the step."""
    return _is_of_the_loop(name) or op_names.is_collective_annotation(name)


def _window(trace: Trace) -> tuple[int, int]:
    tables = [t for t in (trace.gpu, trace.runtime, trace.ops, trace.annotations, trace.python) if len(t)]
    return (
        min((int(t.start.min()) for t in tables), default=0),
        max((int(t.end.max()) for t in tables), default=1),
    )


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
