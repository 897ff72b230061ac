"""The call tree of the CPU threads: which slice encloses which, computed without a loop over events."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values, numbered
from traceopt.analyzer.arrays.intervals import Intervals, union
from traceopt.analyzer.tables.schema import I4, I8, U1, Mask, ThreadSpans
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.marks.marks import PROFILER_STEP

# A program that moves the times of a trace rounds them: microseconds since 1970 have steps of 1 ns as floating-point
# numbers, and an end is the sum of two.
_ROUNDED_NS = 2
_LEVELS = 64  # nesting levels that are climbed one by one; traces have about as many, attacks may have any number
# Order of slices that begin at the same time, outermost first.
PYTHON, ANNOTATION, OP, RUNTIME = 0, 1, 2, 3


class Spans(Struct, frozen=True):
    """One stretch of time per slice of interest, in the order of the slices. Arrays have shape (len,), times in ns."""

    slice: I8  # row of Slices
    start: I8
    end: I8


class Slices(Struct, frozen=True, dict=True):
    """Every CPU slice in one table, sorted by thread and start, each with the slice that encloses it."""

    thread: I4
    start: I8  # ns
    end: I8  # ns
    kind: U1  # PYTHON, ANNOTATION, OP, RUNTIME
    name: I4
    row: I4  # row in the table of its kind
    parent: I4  # row here of the enclosing slice on the same thread, -1: none; ProfilerStep encloses nothing

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def _index(self) -> dict[int, I4]:
        return {}

    def of(self, kind: int, rows: int) -> I4:
        """For each row of a kind's own table (which has `rows` rows), its row here. Shape (rows,)."""
        known = self._index.get(kind)
        if known is None:
            known = np.empty(rows, np.int32)
            mine = np.flatnonzero(self.kind == kind)
            known[self.row[mine]] = mine
            self._index[kind] = known
        return known

    def mask(self, rows: npt.NDArray[np.integer] | npt.NDArray[np.bool_]) -> Mask:
        """A new mask of all slices that is set for some rows."""
        out = np.zeros(len(self), bool)
        out[rows] = True
        return out

    def duration_of(self, rows: npt.NDArray[np.integer]) -> I8:
        return np.asarray(self.end[rows] - self.start[rows])

    def area_of(self, rows: npt.NDArray[np.integer] | Mask) -> Intervals:
        """The times when any of these slices ran."""
        return union(self.start[rows], self.end[rows])

    def name_codes(self, *kinds: int) -> npt.NDArray[np.intp]:
        """The distinct name codes of the slices of some kinds."""
        return np.flatnonzero(self._uses[list(kinds)].any(axis=0))

    @cached_property
    def _uses(self) -> npt.NDArray[np.bool_]:
        """Whether any slice of each kind has each name. Shape (kinds, names)."""
        out = np.zeros((RUNTIME + 1, int(self.name.max(initial=-1)) + 1), bool)
        out[self.kind, self.name] = True
        return out

    def ancestor(self, slices: npt.NDArray[np.integer], wanted: npt.NDArray[np.bool_]) -> I4:
        """Like `nearest`, for some slices; -1 stays -1. Shape (len(slices),)."""
        if not len(self):
            return np.full(len(slices), -1, np.int32)
        if np.count_nonzero(wanted) > len(slices):  # then one is likely to be close
            return self._climbed(slices, wanted)
        place, innermost = self._innermost(wanted)
        found = innermost[np.searchsorted(place, np.maximum(slices, 0), side="right") - 1]
        return np.where((slices >= 0) & (wanted[slices] | ~self._alone[slices]), found, -1)

    def _climbed(self, slices: npt.NDArray[np.integer], wanted: npt.NDArray[np.bool_]) -> I4:
        out: I4 = slices.astype(np.int32)
        moving = np.flatnonzero(out >= 0)
        moving = moving[~wanted[out[moving]]]
        for _ in range(_LEVELS):
            if not len(moving):
                return out
            out[moving] = self.parent[out[moving]]
            moving = moving[out[moving] >= 0]
            moving = moving[~wanted[out[moving]]]
        out[moving] = self.nearest(wanted)[out[moving]]
        return out

    def nearest(self, wanted: npt.NDArray[np.bool_]) -> I4:
        """For every slice, the innermost `wanted` slice that is it or encloses it; -1: none. Shape (len,)."""
        place, innermost = self._innermost(wanted)
        out: I4 = np.repeat(innermost, np.diff(np.append(place, len(self))))
        out[self._alone & ~wanted] = -1
        return out

    def outermost(self, wanted: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
        """The `wanted` slices that no other wanted slice encloses."""
        rows = np.flatnonzero(wanted)
        reach = np.append(0, np.maximum.accumulate(self._after[rows]))[:-1]
        return rows[(rows >= reach) | self._alone[rows]]

    def enclosed(self, rows: npt.NDArray[np.integer]) -> I4:
        """The number of slices inside each of some slices. Shape (len(rows),)."""
        return np.asarray(self._after[rows] - rows - 1, np.int32)

    def encloses(self, wanted: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """The slices that are `wanted` or have a wanted slice inside them. Shape (len,)."""
        until = np.append(0, np.cumsum(wanted & ~self._alone))
        return np.asarray(wanted | (until[self._after] > until[:-1]))

    def next_outermost(self, rows: npt.NDArray[np.integer], wanted: npt.NDArray[np.bool_]) -> I8:
        """The outermost `wanted` slice that follows each slice on its thread; -1: none. Shape (len(rows),)."""
        outer = self.outermost(wanted)
        if not len(outer):
            return np.full(len(rows), -1, np.int64)
        at = np.searchsorted(outer, rows, side="right")
        following = outer[np.minimum(at, len(outer) - 1)]
        return np.where((at < len(outer)) & (self.thread[following] == self.thread[rows]), following, -1)

    def spans(self, rows: npt.NDArray[np.integer], around: npt.NDArray[np.bool_]) -> Spans:
        """From the first to the last of some slices in each slice of the mask `around` that encloses any of them."""
        owner = self.ancestor(rows, around)
        rows, owner = rows[owner >= 0], owner[owner >= 0]
        owners, group = numbered(owner)
        first = np.full(len(owners), np.iinfo(np.int64).max)
        last = np.full(len(owners), np.iinfo(np.int64).min)
        np.minimum.at(first, group, self.start[rows])
        np.maximum.at(last, group, self.end[rows])
        return Spans(owners.astype(np.int64), first, last)

    def _innermost(self, wanted: npt.NDArray[np.bool_]) -> tuple[I8, I4]:
        """The rows at which the innermost open wanted slice changes, and that slice from there on; -1: none. If rows
        repeat, the last one counts.

        The slices that a slice encloses follow it directly. The enclosing slice at a given depth is the last one opened
        at that depth.
        """
        opens = np.flatnonzero(wanted)
        place = np.concatenate((self._after[opens], opens))
        order = np.argsort(place, kind="stable")  # stable: at the same row, closing comes before opening
        opening = order >= len(opens)
        place = place[order]
        depth = np.cumsum(np.where(opening, 1, -1))
        innermost = np.where(opening, place, -1)
        back = np.flatnonzero(~opening & (depth > 0))
        if len(back):
            moment = depth * len(order) + np.arange(len(order))
            opened = np.flatnonzero(opening)
            opened = opened[np.argsort(depth[opened], kind="stable")]
            innermost[back] = place[opened[np.searchsorted(moment[opened], moment[back]) - 1]]
        return np.append(0, place), np.append(-1, innermost).astype(np.int32)

    @cached_property
    def _after(self) -> I4:
        """For each slice, the row after the last slice inside it."""
        last = np.arange(len(self), dtype=np.int32)
        child = np.flatnonzero(self.parent >= 0)
        last[self.parent[child]] = child  # children are in order, so the last child of each parent stays
        moving = np.flatnonzero(last != np.arange(len(self)))
        while len(moving):
            further = last[last[moving]]
            jumped = further > last[moving]
            last[moving] = further
            moving = moving[jumped]
        return last + 1

    @cached_property
    def _alone(self) -> npt.NDArray[np.bool_]:
        """Slices that are between the rows of an enclosing slice but not inside it: the profiler steps."""
        reach = np.append(0, np.maximum.accumulate(self._after)[:-1]) if len(self) else self._after
        return np.asarray((self.parent < 0) & (np.arange(len(self)) < reach))

    def at(self, thread: int, time: I8) -> I4:
        """The innermost slice of a thread that is open at each time; -1: none. Shape (len(time),)."""
        if not len(self):
            return np.full(len(time), -1, np.int32)
        mine = self.of_thread(thread)
        index = np.searchsorted(self.start[mine], time, side="right") - 1 + mine.start
        found = np.where(index >= mine.start, index, -1)
        for _ in range(_LEVELS):
            closed = (found >= 0) & (self.end[np.maximum(found, 0)] <= time)
            if not closed.any():
                break
            around = np.where(self._alone[found], found - 1, self.parent[found])
            found = np.where(closed, around, found)
        else:
            found = self._outermost_closed(found, time)
        return found.astype(np.int32)

    def at_threads(self, threads: npt.NDArray[np.integer], time: I8) -> I4:
        """Like `at`, with a thread for each time. Shape (len(time),)."""
        found = np.full(len(time), -1, np.int32)
        for thread in distinct_values(threads).tolist():  # a few threads
            mine = threads == thread
            found[mine] = self.at(thread, time[mine])
        return found

    def of_thread(self, thread: int) -> slice:
        """The rows of one thread."""
        first, last = np.searchsorted(self.thread, np.array([thread, thread + 1], self.thread.dtype)).tolist()
        return slice(first, last)

    def _outermost_closed(self, found: npt.NDArray[np.integer], time: I8) -> npt.NDArray[np.integer]:
        """Like `at`, for deeply nested slices: checks the 2nd, 4th, 8th, ... enclosing slice of each."""
        above = [self.parent]
        while (above[-1] >= 0).any():
            above.append(np.where(above[-1] >= 0, above[-1][np.maximum(above[-1], 0)], -1).astype(np.int32))

        def closed(rows: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
            return np.asarray((rows >= 0) & (self.end[np.maximum(rows, 0)] <= time))

        for jump in reversed(above):
            farther = np.where(found >= 0, jump[np.maximum(found, 0)], -1)
            found = np.where(closed(found) & closed(farther), farther, found)
        return np.where(closed(found), self.parent[np.maximum(found, 0)], found)


def build_slices(trace: Trace) -> Slices:
    """Joins the CPU tables of a trace and finds the parent of every slice."""
    tables: list[tuple[int, ThreadSpans]] = [
        (PYTHON, trace.python),
        (ANNOTATION, trace.annotations),
        (OP, trace.ops),
        (RUNTIME, trace.runtime),
    ]
    start = np.concatenate([t.start for _, t in tables])
    end = np.concatenate([t.end for _, t in tables])
    thread = np.concatenate([t.thread for _, t in tables])
    kind = np.concatenate([np.full(len(t), k, np.uint8) for k, t in tables])
    name = np.concatenate([t.name for _, t in tables])
    row = np.concatenate([np.arange(len(t), dtype=np.int32) for _, t in tables])
    order = _outermost_first(thread, start, end, kind)
    start, end, thread, kind, name = start[order], end[order], thread[order], kind[order], name[order]
    is_step = np.array([PROFILER_STEP.match(name) is not None for name in trace.names] or [False])
    steps = np.flatnonzero(is_step[name])  # a step may begin and end within frames: it encloses nothing
    reach = end.copy()
    reach[steps] = start[steps]
    parent = enclosing(thread, start, reach, max(_resolution_ns(start, end), _ROUNDED_NS))
    parent[steps] = -1
    return Slices(thread, start, end, kind, name, row[order], parent)


def _outermost_first(thread: I4, start: I8, end: I8, kind: U1) -> I4:
    """The order by thread, start, length (longest first) and kind."""
    order: I4 = np.argsort(start, kind="stable").astype(np.int32)  # stable: keeps the order of the tables
    small = np.uint16 if thread.max(initial=0) < 1 << 16 else np.int32  # NumPy radix-sorts 16-bit integers in one pass
    order = order[np.argsort(thread.astype(small)[order], kind="stable")]
    sorted_start, sorted_thread = start[order], thread[order]
    same = (sorted_start[1:] == sorted_start[:-1]) & (sorted_thread[1:] == sorted_thread[:-1])
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    rows = order[tied]
    order[tied] = rows[np.lexsort((rows, kind[rows], start[rows] - end[rows], start[rows], thread[rows]))]
    return order


def _resolution_ns(start: I8, end: I8) -> int:
    """1000 if every time is a whole microsecond (traces up to 2023), else 1."""
    sample = slice(0, 10_000)
    whole = not (start[sample] % 1000).any() and not (end[sample] % 1000).any()
    return 1000 if whole and len(start) else 1


def enclosing(thread: I4, start: I8, end: I8, slack_ns: int = 0) -> I4:
    """The parent of each slice: the closest earlier slice of its thread that is open at its start and reaches its end.

    The input is sorted by (thread, start, -duration). A slice that crosses its neighbor's end is not its child. With
    truncated or rounded times, a child may seem to end later than its parent by up to `slack_ns`. The search starts at
    the previous slice and jumps along the other slices' candidates: what a candidate has skipped cannot enclose a later
    slice, so each round doubles the reach. Where deeply nested slices end together, it climbs one level per round.
    """
    n = len(start)
    needed = np.maximum(start + 1, end - slack_ns)  # the earliest end of a slice that encloses it
    candidate = np.arange(-1, n - 1, dtype=np.int32)
    same = thread[1:] == thread[:-1]
    candidate[1:][~same] = -1
    searching = (np.flatnonzero(same & (end[:-1] < needed[1:])) + 1).astype(np.int32)
    wanted, at = needed[searching], candidate[searching]
    for _ in range(_LEVELS):
        at = candidate[at]
        candidate[searching] = at
        settled = (at < 0) | (end[at] >= wanted)
        if settled.all():
            return candidate
        searching, wanted, at = searching[~settled], wanted[~settled], at[~settled]
    # In order, starting at the previous slice: what one search skips, no later one visits again.
    for row in searching.tolist():
        above = row - 1
        while above >= 0 and end[above] < needed[row]:
            above = int(candidate[above])
        candidate[row] = above
    return candidate
