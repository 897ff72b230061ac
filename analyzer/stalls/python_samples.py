"""Which Python functions a thread runs at sampled times of an area."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.arrays.grouping import numbered, split
from traceopt.analyzer.arrays.intervals import Intervals, union
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import Slices
from traceopt.analyzer.timeline.steps import Steps

SAMPLE_NS = 100_000
MOST_SAMPLES = 20_000  # longer areas are sampled at larger intervals


class PythonSamples(Struct, frozen=True):
    """The innermost slice of a thread at each sampled time, shape (len,). Each sample stands for `each_ns`."""

    rows: I8  # of the slices
    time: I8  # ns
    function: I8  # name code of the slice
    each_ns: int

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def area(self) -> Intervals:
        """The time that the samples stand for."""
        return union(self.time, self.time + self.each_ns)

    def recurring(self, steps: Steps) -> tuple[float, PythonSamples]:
        """The samples of functions that take time in three of four steps, and how long these take per step, ns.

        The time of a function is its lower quartile over the steps. If a thread waits for a core, it seems to run
        Python, but a different function each time.
        """
        total, chosen = 0, np.zeros(len(self), bool)
        functions, group = numbered(self.function)
        step = steps.host_step_of(self.time)
        for mine in split(np.arange(len(self)), group, len(functions)) if len(functions) else []:
            by_step = steps.per_step(step[mine], np.full(len(mine), self.each_ns, np.int64))
            usual = int(np.sort(by_step)[(steps.count - 1) // 4])
            total += usual
            chosen[mine] = usual > 0
        kept = replace(self, rows=self.rows[chosen], time=self.time[chosen], function=self.function[chosen])
        return float(total), kept


def sample_python(slices: Slices, thread: int, area: Intervals) -> PythonSamples:
    """What a thread runs at regular times of an area; times at which it runs nothing are left out."""
    each_ns = max(SAMPLE_NS, area.total // MOST_SAMPLES)
    time = np.concatenate(
        [np.arange(a, b, each_ns) for a, b in zip(area.start.tolist(), area.end.tolist(), strict=True)]
        or [np.empty(0, np.int64)]
    )
    rows = slices.at(thread, time).astype(np.int64)
    rows, time = rows[rows >= 0], time[rows >= 0]
    return PythonSamples(rows, time, slices.name[rows].astype(np.int64), each_ns)
