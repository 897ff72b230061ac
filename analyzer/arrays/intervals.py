"""Interval arithmetic on sorted, disjoint sets of half-open intervals [start, end) in integer nanoseconds.

`union` accepts intervals in any order, nested or overlapping; all other functions take and return `Intervals`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

I8 = npt.NDArray[np.int64]

_BLOCK = 1 << 14  # queries per block, so that intermediate arrays stay in the CPU cache


class Intervals(Struct, frozen=True, dict=True):
    """A sorted set of disjoint, non-empty intervals that do not touch each other."""

    start: I8
    end: I8

    def __len__(self) -> int:
        return len(self.start)

    @property
    def length(self) -> I8:
        return self.end - self.start

    @cached_property
    def _outside(self) -> I8:
        """Time before each interval's end that no interval covers."""
        return self.end - np.cumsum(self.length)

    @cached_property
    def total(self) -> int:
        return int(self.length.sum())

    def covered_before(self, time: npt.NDArray[Any]) -> I8:
        """Covered time before each given time; the difference of two is the covered time between them."""
        if not len(self):
            return np.zeros(len(time), np.int64)
        last = np.searchsorted(self.start, time, side="right") - 1  # last interval that starts at or before the time
        covered = np.minimum(time, self.end[last])
        covered -= self._outside[last]
        covered[last < 0] = 0
        return np.asarray(covered)

    def within(self, start: npt.NDArray[Any], end: npt.NDArray[Any]) -> I8:
        """Covered time inside each query interval; queries may overlap. Shape (n,)."""
        inside = np.empty(len(start), np.result_type(start, end, np.int64))
        for first in range(0, len(start), _BLOCK):
            block = slice(first, first + _BLOCK)
            begin, until = start[block], np.maximum(start[block], end[block])
            np.subtract(self.covered_before(until), self.covered_before(begin), out=inside[block])
        return inside

    def contains(self, time: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        if not len(self):
            return np.zeros(len(time), bool)
        index = np.searchsorted(self.start, time, side="right") - 1
        return (index >= 0) & (time < self.end[np.maximum(index, 0)])


EMPTY = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))


def union(start: npt.NDArray[Any], end: npt.NDArray[Any]) -> Intervals:
    """The set covered by any of the intervals, which may overlap and be in any order."""
    keep = end > start
    if not keep.all():
        start, end = start[keep], end[keep]
    if not len(start):
        return EMPTY
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    edges = np.ones(len(start) + 1, bool)  # where a merged interval starts, and one past where the previous one ends
    np.greater(start[1:], reach[:-1], out=edges[1:-1])
    return Intervals(start[edges[:-1]].astype(np.int64, copy=False), reach[edges[1:]].astype(np.int64, copy=False))


def clip(a: Intervals, start: int, end: int) -> Intervals:
    """The part of the set inside [start, end)."""
    return union(np.minimum(np.maximum(a.start, start), end), np.minimum(np.maximum(a.end, start), end))


def complement(a: Intervals, start: int, end: int) -> Intervals:
    """The part of [start, end) that the set does not cover."""
    inside = clip(a, start, end)
    edges_start = np.concatenate(([start], inside.end))
    edges_end = np.concatenate((inside.start, [end]))
    return union(edges_start, edges_end)


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """Times covered by both sets."""
    if not len(a) or not len(b):
        return EMPTY
    # Each interval of a overlaps a contiguous run of intervals of b.
    first = np.searchsorted(b.end, a.start, side="right")
    last = np.searchsorted(b.start, a.end, side="left")
    counts = np.maximum(last - first, 0)
    row = np.repeat(np.arange(len(a)), counts)
    within_run = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    other = np.repeat(first, counts) + within_run
    return union(np.maximum(a.start[row], b.start[other]), np.minimum(a.end[row], b.end[other]))


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """Times covered by a and not by b."""
    if not len(a) or not len(b):
        return a
    return intersect(a, complement(b, int(a.start[0]), int(a.end[-1])))


def merge(*sets: Intervals) -> Intervals:
    """Times covered by any of the sets."""
    sets = tuple(s for s in sets if len(s))
    if len(sets) < 2:
        return sets[0] if sets else EMPTY
    return union(np.concatenate([s.start for s in sets]), np.concatenate([s.end for s in sets]))
