"""Which operators work on the same sizes in two cycles, so that the shapes of one fit the times of the other.

Batches may vary in length. An operator that works on other sizes launches other kernels, or another number of blocks.
On a CPU, it takes another time.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import CodeArray, distinct_values, group_rows
from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.tables.launches import launch_rows
from traceopt.analyzer.tables.schema import I4, I8, Mask, OpTable
from traceopt.analyzer.tables.trace import Trace

MAX_DIFFERING = 0.1  # of a step's device time: work whose sizes depend on the data, in batches of one size
MAX_TIME = 1.05  # times the other's: long kernels vary by less
MAX_CPU_TIME = 1.25  # the same of operators on a CPU, the median of a step
LONG_NS = 500_000  # an operator on a CPU: what is recorded of it takes next to none of its time


class SameWork(Struct, frozen=True):
    """Compares the operators of two cycles, whose names and threads have the same codes."""

    timing: _Launched
    detail: _Launched

    @classmethod
    def of(cls, timing: Trace, detail: Trace) -> SameWork:
        columns = [np.concatenate(pair) for pair in zip(_sizes(timing), _sizes(detail), strict=True)]
        kinds, kind = group_rows(*columns)
        # A sum of random numbers, one for each kind, stands for the kinds in it.
        number = np.random.default_rng(0).integers(np.iinfo(np.int64).max, size=len(kinds))[kind]
        return cls(_Launched.of(timing, number[: len(timing.gpu)]), _Launched.of(detail, number[len(timing.gpu) :]))

    def is_same(self, rows: I8, others: I8) -> Mask:
        """Which pairs of matching operators of two steps work on the same sizes. `others`: rows of the detail cycle.

        In batches of different sizes, the same kernels must also take as long: a sum over the batch (the gradient of a
        weight) has as many blocks in each of them.
        """
        if not len(self.timing.start):
            return self._takes_as_long(rows, others)
        mine, theirs = self.timing.under(rows), self.detail.under(others)
        same = mine.number == theirs.number
        if mine.spent[~same].sum() <= MAX_DIFFERING * mine.spent.sum():
            return np.asarray(same)
        shorter, longer = np.minimum(mine.spent, theirs.spent), np.maximum(mine.spent, theirs.spent)
        return np.asarray(same & (longer <= MAX_TIME * shorter))

    def _takes_as_long(self, rows: I8, others: I8) -> Mask:
        """All pairs or none: whether the long operators of a step on a CPU take as long in both cycles."""
        mine, theirs = self.timing.ops.duration[rows], self.detail.ops.duration[others]
        long = np.minimum(mine, theirs) >= LONG_NS
        ratio = median(mine[long] / theirs[long]) if long.any() else 1.0
        return np.full(len(rows), 1 / MAX_CPU_TIME <= ratio <= MAX_CPU_TIME)


class _Sums(Struct, frozen=True):
    """Of the work that operators launched: `number` stands for its kinds, `spent` is its time, ns."""

    number: I8
    spent: I8


class _Launched(Struct, frozen=True):
    """The device work of a cycle in the order of its launches, by thread. Arrays have shape (launches,)."""

    ops: OpTable
    thread: I4
    start: I8
    before: _Sums  # each launch; shape (launches + 1,)

    @classmethod
    def of(cls, trace: Trace, number: I8) -> _Launched:
        launch = launch_rows(trace.gpu.correlation, trace.runtime)
        work = np.flatnonzero(launch >= 0)
        start, thread = trace.runtime.start[launch[work]], trace.runtime.thread[launch[work]]
        order = np.lexsort((start, thread))
        number, spent = number[work[order]], trace.gpu.duration[work[order]]
        before = _Sums(np.append(0, np.cumsum(number)), np.append(0, np.cumsum(spent)))
        return cls(trace.ops, thread[order], start[order], before)

    def under(self, rows: I8) -> _Sums:
        """The sums over what each operator launched. Shape (len(rows),)."""
        begin, end = self._place(rows, self.ops.start[rows]), self._place(rows, self.ops.end_of(rows))
        number, spent = self.before.number, self.before.spent
        return _Sums(number[end] - number[begin], spent[end] - spent[begin])

    def _place(self, rows: I8, time: I8) -> I8:
        """The first launch on each operator's thread that is not before a time."""
        out = np.zeros(len(rows), np.int64)
        for thread in distinct_values(self.ops.thread[rows]).tolist():
            first, last = np.searchsorted(self.thread, [thread, thread + 1])
            mine = self.ops.thread[rows] == thread
            out[mine] = first + np.searchsorted(self.start[first:last], time[mine])
        return out


def _sizes(trace: Trace) -> list[CodeArray]:
    """Columns of the kernel, blocks, threads and bytes of each piece of the device's work."""
    gpu = trace.gpu
    return [gpu.name, *gpu.grid.T, *gpu.block.T, gpu.bytes]
