"""Operators of a CPU-only run, and which are so small that calling them costs more than their computation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.intervals import Intervals
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.vocabulary import op_names

TINY_NS = 30_000


class CalledOps(Struct, frozen=True):
    """Outermost operators in order of time, shape (len,). From `start` to `end` is the call and a little of the Python
    that follows it. `tiny`: kinds of operators with a median duration of at most 30 us; single calls may take longer,
    because the thread may lose its core.
    """

    rows: I8  # of the slices
    start: I8
    end: I8
    tiny: npt.NDArray[np.bool_]

    @property
    def only_tiny(self) -> CalledOps:
        return self._where(self.tiny)

    def only(self, rows: npt.NDArray[np.integer]) -> CalledOps:
        """The operators among these slices."""
        return self._where(np.isin(self.rows, rows))

    def _where(self, mine: npt.NDArray[np.bool_]) -> CalledOps:
        return CalledOps(self.rows[mine], self.start[mine], self.end[mine], self.tiny[mine])


def find_called_ops(regions: Regions, thread: int, model_work: Intervals) -> CalledOps:
    """The operators of a thread within an area. Autograd's gradient accumulation is left out: no line calls it."""
    slices = regions.slices
    op = (slices.kind == OP) & ~regions.named(op_names.is_gradient_accumulation, OP)
    rows = slices.outermost(op)
    rows = rows[slices.thread[rows] == thread]
    rows = rows[model_work.contains(slices.start[rows])]
    start, end = slices.start[rows], slices.end[rows]
    until = np.minimum(np.append(start[1:], np.iinfo(np.int64).max), end + TINY_NS)
    return CalledOps(rows, start, until, _is_tiny(slices.name[rows], end - start))


def _is_tiny(names: npt.NDArray[np.integer], duration: I8) -> npt.NDArray[np.bool_]:
    kinds, kind = np.unique(names, return_inverse=True)
    order = np.lexsort((duration, kind))
    first = np.searchsorted(kind[order], np.arange(len(kinds)))
    count = np.bincount(kind, minlength=len(kinds))
    median = duration[order][first + (count - 1) // 2] if len(kinds) else duration
    return np.asarray(median[kind] <= TINY_NS) if len(kinds) else np.empty(0, bool)
