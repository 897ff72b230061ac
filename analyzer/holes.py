"""Holes: stretches of Python on a launching thread without a single event, while the GPU starves.

With stacks recorded every call shows, builtins too. What is left inside one frame is the collector, native code that
holds the interpreter, or a loop that calls nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceopt.analyzer.idle import Gaps
from traceopt.analyzer.nesting import PYTHON, Slices
from traceopt.analyzer.tables import I8

SHORTEST_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class Holes:
    """Arrays have shape (len,); times in ns. `slice` is the Python frame around the hole."""

    gap: I8  # row of the gaps
    start: I8
    end: I8
    slice: I8

    def __len__(self) -> int:
        return len(self.gap)


def find_holes(slices: Slices, gaps: Gaps, names: list[str]) -> Holes:
    """The longest hole of each gap in which the GPU starved for a millisecond or more."""
    rows: list[tuple[int, int, int, int]] = []
    for gap in np.flatnonzero(gaps.starved_end - gaps.start >= SHORTEST_NS).tolist():  # few: they are long
        mine = np.flatnonzero(slices.thread == gaps.thread[gap])
        first, last = int(gaps.start[gap]), int(gaps.starved_end[gap])
        edges = np.concatenate((slices.start[mine], slices.end[mine], [first, last]))
        edges = np.sort(edges[(edges >= first) & (edges <= last)])
        widest = int(np.diff(edges).argmax())
        start, end = int(edges[widest]), int(edges[widest + 1])
        around = mine[(slices.start[mine] <= start) & (slices.end[mine] >= end)]
        if end - start < SHORTEST_NS or not len(around):
            continue
        innermost = int(around[slices.start[around].argmax()])
        if slices.kind[innermost] == PYTHON and not names[slices.name[innermost]].startswith("<"):
            rows.append((gap, start, end, innermost))
    table = np.array(rows, np.int64).reshape(-1, 4)
    return Holes(table[:, 0], table[:, 1], table[:, 2], table[:, 3])
