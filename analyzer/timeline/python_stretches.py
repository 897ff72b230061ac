"""What a thread runs inside an area: its time split among the innermost slices, to the nanosecond."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.arrays.columns import Columns
from traceopt.analyzer.arrays.grouping import distinct_values, group_rows, numbered
from traceopt.analyzer.arrays.intervals import Intervals, union
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.timeline.call_tree import Slices
from traceopt.analyzer.timeline.steps import Steps

F8 = npt.NDArray[np.float64]
Rows = npt.NDArray[np.integer]
LARGE_BYTES = 1 << 22  # tensors that the C library may return to the system
# Bytes per ns: a line that frees at least so much does little else. 50 MB take 3 ms, and 9 ms on a busy machine.
FREED_PER_NS = 4


class PythonStretches(Columns, frozen=True):
    """Stretches of time in which one slice of a thread is the innermost. Arrays have shape (len,), times in ns."""

    rows: I8  # of the slices; a slice that calls others has several stretches
    start: I8
    end: I8
    function: I8  # name code of the slice

    @property
    def length(self) -> I8:
        return self.end - self.start

    @property
    def area(self) -> Intervals:
        return union(self.start, self.end)

    def recurring(self, steps: Steps) -> tuple[F8, PythonStretches]:
        """The stretches of functions that take time in three of four steps, and what each takes of a step, ns.

        The time of a function is its lower quartile over the steps. If a thread waits for a core, it seems to run
        Python, but a different function each time.
        """
        functions, group = numbered(self.function)
        step = steps.host_step_of(self.start)
        inside = step >= 0
        place = group[inside] * steps.count + step[inside]
        by_step = np.bincount(place, weights=self.length[inside], minlength=len(functions) * steps.count)
        usual = np.sort(by_step.reshape(len(functions), steps.count), axis=1)[:, steps.count // 4]
        recurs = usual[group] > 0
        total = np.bincount(group, weights=self.length, minlength=len(functions))
        return (self.length * usual[group] / total[group])[recurs], self.take(recurs)

    def after_loading(self, slices: Slices, loading: Intervals) -> Mask:
        """Which stretches directly follow the call that loaded a batch. There, a loop frees the batch before, which can
        take milliseconds and looks like Python work. Shape (len,).
        """
        call = slices.at_threads(slices.thread[self.rows], self.start - 1).astype(np.int64)
        higher = np.flatnonzero((call >= 0) & (slices.parent[call] != self.rows))
        while len(higher):
            call[higher] = slices.parent[call[higher]]
            higher = higher[(call[higher] >= 0) & (slices.parent[call[higher]] != self.rows[higher])]
        loaded = np.asarray(call >= 0)
        loaded[loaded] = loading.within(slices.start[call[loaded]], slices.end[call[loaded]]) > 0
        return loaded

    def free_memory(self, sites: Rows, freed_bytes: I8, freed_at: I8, recorded: Intervals) -> Mask:
        """Which stretches are of a line and function that returns large tensors on the CPU to the system, which takes
        milliseconds and looks like Python work. `sites`: the line of each. `freed_bytes`, `freed_at`: of each block
        of memory. `recorded`: when they were recorded; the other stretches of a line do the same. Shape (len,).
        """
        large = np.flatnonzero(freed_bytes >= LARGE_BYTES)
        large = large[np.argsort(freed_at[large], kind="stable")]
        freed = np.append(0, np.cumsum(freed_bytes[large]))
        first, last = (np.searchsorted(freed_at[large], times) for times in (self.start, self.end))
        seen = recorded.contains(self.start)
        _, line = group_rows(sites, self.function)
        bytes_freed = np.bincount(line, weights=(freed[last] - freed[first]) * seen)
        return np.asarray((bytes_freed > FREED_PER_NS * np.bincount(line, weights=self.length * seen))[line])


def python_stretches(slices: Slices, thread: int, area: Intervals, steps: Steps) -> PythonStretches:
    """What a thread runs in an area, cut at the edges of steps; times at which it runs nothing are left out."""
    mine = slices.of_thread(thread)
    moments = np.concatenate((slices.start[mine], slices.end[mine], steps.host_start, steps.host_end))
    cuts = distinct_values(np.concatenate((area.start, area.end, moments[area.contains(moments)])))
    start, end = cuts[:-1], cuts[1:]
    rows = slices.at(thread, start).astype(np.int64)
    kept = (rows >= 0) & area.contains(start)
    rows = rows[kept]
    return PythonStretches(rows, start[kept], end[kept], slices.name[rows].astype(np.int64))
