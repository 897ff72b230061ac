"""Untraced Python: stretches of Python on a launching thread without a single event, while the GPU starves.

With stacks recorded every call shows, including builtins. What is left inside one frame is the garbage collector,
native code that holds the GIL, or a loop that makes no calls, which takes time in most calls of its function.
"""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.arrays.columns import Columns
from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.attribution.idle import Gaps
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.timeline.call_tree import PYTHON, Slices

SHORTEST_NS = 1_000_000
SEVERAL = 2  # calls per step
MOST = 0.5  # of the calls of a function


class UntracedPython(Columns, frozen=True):
    """Arrays have shape (len,); times in ns. `slice` is the Python frame around the stretch."""

    gap: I8  # row of Gaps
    start: I8
    end: I8
    slice: I8


NO_UNTRACED_PYTHON = UntracedPython(*(np.empty(0, np.int64) for _ in range(4)))


def find_untraced_python(slices: Slices, gaps: Gaps, names: list[str]) -> UntracedPython:
    """The longest untraced stretch of each gap in which the GPU starved for at least a millisecond. Not those of a
    function in which most calls have one, several times per step: it computes without calls.
    """
    if not len(slices.name_codes(PYTHON)):
        return NO_UNTRACED_PYTHON
    rows: list[tuple[int, int, int, int]] = []
    ends: dict[int, I8] = {}
    for gap in np.flatnonzero(gaps.starved_end - gaps.start >= SHORTEST_NS).tolist():  # few, because they are long
        thread, first, last = int(gaps.thread[gap]), int(gaps.start[gap]), int(gaps.starved_end[gap])
        mine = slices.of_thread(thread)
        if thread not in ends:
            ends[thread] = np.sort(slices.end[mine])
        inside = [_between(edges, first, last) for edges in (slices.start[mine], ends[thread])]
        edges = np.sort(np.concatenate((*inside, [first, last])))
        widest = int(np.diff(edges).argmax())
        start, end = int(edges[widest]), int(edges[widest + 1])
        innermost = int(slices.at(thread, edges[widest : widest + 1])[0])
        if end - start < SHORTEST_NS or innermost < 0:
            continue
        if slices.kind[innermost] == PYTHON and not names[slices.name[innermost]].startswith("<"):
            rows.append((gap, start, end, innermost))
    table = np.array(rows, np.int64).reshape(-1, 4)
    table = table[~_compute(slices, gaps, table[:, 3])]
    return UntracedPython(table[:, 0], table[:, 1], table[:, 2], table[:, 3])


def _compute(slices: Slices, gaps: Gaps, frames: I8) -> Mask:
    """Which frames are of functions that are silent in most of their calls, with several calls per step."""
    python = np.bincount(slices.name[slices.kind == PYTHON], minlength=int(slices.name.max(initial=0)) + 1)
    silent = np.bincount(slices.name[distinct_values(frames)], minlength=len(python))
    often = silent >= SEVERAL * len(distinct_values(gaps.step))
    found: Mask = (often & (silent >= MOST * python))[slices.name[frames]]
    return found


def _between(times: I8, first: int, last: int) -> I8:
    """Of sorted times, those in [first, last]."""
    return times[np.searchsorted(times, first, "left") : np.searchsorted(times, last, "right")]
