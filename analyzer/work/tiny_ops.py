"""Operators of a CPU-only run that are so small that calling them costs more than their computation."""

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


class TinyOps(Struct, frozen=True):
    """Outermost operators in order of time, shape (len,). From `start` to `end` is the call and a little of the Python
    that follows it.
    """

    rows: I8  # of the slices
    start: I8
    end: I8

    def only(self, rows: npt.NDArray[np.integer]) -> TinyOps:
        """The operators among these slices."""
        mine = np.isin(self.rows, rows)
        return TinyOps(self.rows[mine], self.start[mine], self.end[mine])


def find_tiny_ops(regions: Regions, thread: int, model_work: Intervals) -> TinyOps:
    """The operators of a thread within an area whose kind has a median duration of at most 30 us.

    Single calls may take longer, because the thread may lose its core. Autograd's gradient accumulation is left out: no
    line of code calls it.
    """
    slices = regions.slices
    op = (slices.kind == OP) & ~regions.named(op_names.is_gradient_accumulation, OP)
    rows = slices.outermost(op)
    rows = rows[slices.thread[rows] == thread]
    rows = rows[model_work.contains(slices.start[rows])]
    start, end = slices.start[rows], slices.end[rows]
    until = np.minimum(np.append(start[1:], np.iinfo(np.int64).max), end + TINY_NS)
    tiny = _is_tiny(slices.name[rows], end - start)
    return TinyOps(rows[tiny], start[tiny], until[tiny])


def _is_tiny(names: npt.NDArray[np.integer], duration: I8) -> npt.NDArray[np.bool_]:
    kinds, kind = np.unique(names, return_inverse=True)
    order = np.lexsort((duration, kind))
    first = np.searchsorted(kind[order], np.arange(len(kinds)))
    count = np.bincount(kind, minlength=len(kinds))
    median = duration[order][first + (count - 1) // 2] if len(kinds) else duration
    return np.asarray(median[kind] <= TINY_NS) if len(kinds) else np.empty(0, bool)
