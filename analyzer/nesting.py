"""Which slice of a thread encloses which: the call tree of the CPU threads, without a loop over events."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.steps import PROFILER_STEP
from traceopt.analyzer.tables import I4, I8, U1, ThreadSpans
from traceopt.analyzer.trace import Trace

_LEVELS = 64  # of nesting are climbed one by one; traces have about so many, attacks any number
# Order of slices that begin together, outermost first.
PYTHON, ANNOTATION, OP, RUNTIME = 0, 1, 2, 3


@dataclass(frozen=True)
class Slices:
    """Every CPU slice in one table, by thread and then by start, each with the slice that encloses it."""

    thread: I4
    start: I8  # ns
    end: I8  # ns
    kind: U1  # PYTHON, ANNOTATION, OP, RUNTIME
    name: I4
    row: I4  # in the table of its kind
    parent: I4  # row here of the enclosing slice of the same thread, -1: none; ProfilerStep encloses nothing

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def _index(self) -> dict[int, I4]:
        return {}

    def of(self, kind: int, rows: int) -> I4:
        """For each row of a kind's own table (it has `rows` rows), its row here. Shape (rows,)."""
        known = self._index.get(kind)
        if known is None:
            known = np.empty(rows, np.int32)
            mine = np.flatnonzero(self.kind == kind)
            known[self.row[mine]] = mine
            self._index[kind] = known
        return known

    def ancestor(self, slices: npt.NDArray[np.integer], wanted: npt.NDArray[np.bool_]) -> I4:
        """The innermost slice that is `slices` itself or around it and is `wanted` (a mask of all); -1: none.

        Walks up from each row; for all rows at once, `nearest` is faster.
        """
        out: I4 = slices.astype(np.int32)
        moving = np.flatnonzero(out >= 0)
        moving = moving[~wanted[out[moving]]]
        for _ in range(_LEVELS):
            if not len(moving):
                return out
            above = self.parent[out[moving]]
            out[moving] = above
            known = above >= 0
            moving = moving[known & ~wanted[np.where(known, above, 0)]]
        out[moving] = self.nearest(wanted)[out[moving]]
        return out

    def nearest(self, wanted: npt.NDArray[np.bool_]) -> I4:
        """For every slice, the innermost `wanted` one that is it or encloses it; -1: none. Shape (len,).

        Pointers jump over unwanted slices, twice as far each round.
        """
        if not len(self):
            return np.empty(0, np.int32)
        here = np.arange(len(self), dtype=np.int32)
        pointer = np.where(wanted, here, self.parent)
        moving = np.flatnonzero((pointer >= 0) & ~wanted[np.maximum(pointer, 0)])
        while len(moving):
            pointer[moving] = pointer[pointer[moving]]
            target = pointer[moving]
            moving = moving[(target >= 0) & ~wanted[np.maximum(target, 0)]]
        return pointer

    def at(self, thread: int, time: I8) -> I4:
        """The innermost slice of a thread that is open at each time; -1: none. Shape (len(time),)."""
        if not len(self):
            return np.full(len(time), -1, np.int32)
        first, last = np.searchsorted(self.thread, [thread, thread + 1])
        index = np.searchsorted(self.start[first:last], time, side="right") - 1 + first
        found = np.where(index >= first, index, -1)
        for _ in range(_LEVELS):
            closed = (found >= 0) & (self.end[np.maximum(found, 0)] <= time)
            if not closed.any():
                break
            found = np.where(closed, self.parent[np.maximum(found, 0)], found)
        else:
            found = self._outermost_closed(found, time)
        return found.astype(np.int32)

    def _outermost_closed(self, found: npt.NDArray[np.integer], time: I8) -> npt.NDArray[np.integer]:
        """As `at`, from slices deep inside: by the ends of the 2nd, 4th, 8th, ... slice around each."""
        above = [self.parent]
        while (above[-1] >= 0).any():
            above.append(np.where(above[-1] >= 0, above[-1][np.maximum(above[-1], 0)], -1).astype(np.int32))

        def closed(rows: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
            return np.asarray((rows >= 0) & (self.end[np.maximum(rows, 0)] <= time))

        for jump in reversed(above):
            farther = np.where(found >= 0, jump[np.maximum(found, 0)], -1)
            found = np.where(closed(found) & closed(farther), farther, found)
        return np.where(closed(found), self.parent[np.maximum(found, 0)], found)

    @cached_property
    def self_ns(self) -> I8:
        """Each slice's own time: its duration less that of the slices directly inside."""
        own = self.end - self.start
        child = self.parent >= 0
        np.subtract.at(own, self.parent[child], own[child])  # the right side is a copy: whole durations
        own[own < 0] = 0
        return own


def build_slices(trace: Trace) -> Slices:
    """Joins the CPU tables of a trace and finds every slice's parent."""
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
    order = np.lexsort((kind, start - end, start, thread))
    start, end, thread, kind, name = start[order], end[order], thread[order], kind[order], name[order]
    parent = np.full(len(order), -1, np.int32)
    steps = np.array([PROFILER_STEP.match(name) is not None for name in trace.names] or [False])
    scopes = np.flatnonzero(~steps[name])  # a step may begin and end within frames: it cuts time, and holds nothing
    inner = enclosing(thread[scopes], start[scopes], end[scopes], _resolution_ns(start, end))
    parent[scopes] = np.where(inner >= 0, scopes[np.maximum(inner, 0)], -1)
    return Slices(thread, start, end, kind, name, row[order], parent)


def _resolution_ns(start: I8, end: I8) -> int:
    """1000 where every time is a whole microsecond (traces up to 2023), else 1."""
    sample = slice(0, 10_000)
    whole = not (start[sample] % 1000).any() and not (end[sample] % 1000).any()
    return 1000 if whole and len(start) else 1


def enclosing(thread: I4, start: I8, end: I8, resolution_ns: int = 1) -> I4:
    """The parent of each slice: the nearest earlier one of its thread that is open at its start and reaches its end.

    The input is sorted by (thread, start, -duration). A slice that crosses its neighbour's end is no child of it; times
    cut to a resolution may make a child seem to reach beyond its parent by that much. Candidates start at the slice
    before and jump along each other's candidates: whatever a candidate has skipped cannot enclose a later slice
    either, so each round doubles the reach; but where deep slices end together, it climbs a level a round.
    """
    n = len(start)
    candidate = np.arange(-1, n - 1, dtype=np.int32)
    slack = resolution_ns if resolution_ns > 1 else 0
    searching = np.arange(1, n) if n else np.empty(0, np.int64)
    for _ in range(_LEVELS):
        if not len(searching):
            break
        at = candidate[searching]
        known = at >= 0
        safe = np.maximum(at, 0)
        same_thread = known & (thread[safe] == thread[searching])
        encloses = (end[safe] > start[searching]) & (end[safe] >= end[searching] - slack)
        candidate[searching[~same_thread]] = -1
        searching = searching[same_thread & ~encloses]
        candidate[searching] = candidate[candidate[searching]]
    for row in searching.tolist():  # in order, from the slice before: what each skips, no later one meets again
        above = row - 1
        while thread[above] == thread[row] and not (end[above] > start[row] and end[above] >= end[row] - slack):
            above = int(candidate[above])
            if above < 0:
                break
        candidate[row] = above if thread[above] == thread[row] else -1
    return candidate
