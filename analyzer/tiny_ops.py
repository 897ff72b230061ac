"""Operators of a CPU-only run that are so small that calling them costs more than what they compute."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceopt.analyzer.intervals import Intervals
from traceopt.analyzer.nesting import OP, Slices
from traceopt.analyzer.tables import I8

TINY_NS = 30_000
LONGEST_CALL_NS = 2 * TINY_NS  # from one operator to the next; beyond, other work lies between, or no core was free


@dataclass(frozen=True, slots=True)
class TinyOps:
    """Shape (len,), in order of time: outermost operators, and `end`, when the next one began or the call was over."""

    rows: I8  # of the slices
    start: I8
    end: I8


def find_tiny_ops(slices: Slices, thread: int, model_work: Intervals) -> TinyOps:
    """Those of a thread within an area."""
    op = slices.kind == OP
    inner = op & (slices.parent >= 0) & (slices.nearest(op)[np.maximum(slices.parent, 0)] >= 0)
    rows = np.flatnonzero(op & ~inner & (slices.thread == thread))
    start, end = slices.start[rows], slices.end[rows]
    following = np.append(start[1:], end[-1:])
    tiny = (end - start <= TINY_NS) & model_work.contains(start)
    until = np.minimum(np.maximum(following, end), start + LONGEST_CALL_NS)
    return TinyOps(rows[tiny], start[tiny], until[tiny])
