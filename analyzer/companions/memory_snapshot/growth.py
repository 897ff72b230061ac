"""Memory that grows from step to step, and the lines that keep it."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
from msgspec import Struct

from traceopt.analyzer.companions.memory_snapshot.lifetimes import Curve, Lifetimes
from traceopt.analyzer.companions.memory_snapshot.snapshot_file import Mark, SnapshotTables
from traceopt.analyzer.tables.schema import I8

_PROFILER_STEP = re.compile(r"ProfilerStep#\d+")
_UPDATE = re.compile(r"Optimizer\.step#.+\.step")
_SETTLING_STEPS = 1  # the first step makes gradients and optimizer state
_GROWING_SHARE = 0.8  # of the steps that have to leave more memory than the one before
_RECURRING_SHARE = 0.5  # of the steps in which a line has to allocate something that stays


class Kept(Struct, frozen=True):
    """What one owner allocates and keeps: bytes in each step, and the stack that kept most of them."""

    owner: int
    bytes_per_step: float
    stack: int


class Growth(Struct, frozen=True):
    """`allocated` are the bytes at the end of each settled step. `grows`: most steps left more than the one before."""

    allocated: I8
    bytes_per_step: float
    grows: bool
    kept: list[Kept]

    @property
    def steps(self) -> int:
        """Steps that were compared with the one before."""
        return max(0, len(self.allocated) - 1)


def find_step_ends(tables: SnapshotTables) -> I8:
    """Rows of the history before which a step has ended: at the profiler's marks, else at the updates of the optimizer
    that steps most often. Empty without either.
    """
    ends = [mark for mark in tables.marks if mark.ends]
    marks = [mark for mark in ends if _PROFILER_STEP.fullmatch(mark.name)] or _updates(ends)
    times = np.array([mark.time_us for mark in marks], np.int64)
    known = tables.entries.time_us
    if not len(times) or not len(known) or (known < 0).any():
        return np.empty(0, np.int64)
    inside = times[(times >= known[0]) & (times <= known[-1] + 1_000_000)]
    return np.unique(np.searchsorted(known, inside, side="right"))


def find_growth(curve: Curve, lifetimes: Lifetimes, step_ends: I8) -> Growth | None:
    """None if there are too few steps to compare."""
    ends = step_ends[_SETTLING_STEPS:]
    if len(ends) < 3:
        return None
    allocated = curve.allocated[ends - 1]
    growth = np.diff(allocated)
    grows = bool(np.median(growth) > 0 and (growth > 0).mean() >= _GROWING_SHARE)
    return Growth(allocated, float(np.median(growth)), grows, _kept(lifetimes, ends))


def _kept(lifetimes: Lifetimes, ends: I8) -> list[Kept]:
    """Blocks that were allocated in the compared steps and never freed, by owner, most bytes first. A line that keeps
    something in a few steps only fills a cache.
    """
    step = np.searchsorted(ends, lifetimes.start, side="right") - 1
    inside = np.flatnonzero((step >= 0) & (step < len(ends) - 1) & (lifetimes.end == lifetimes.never))
    steps = len(ends) - 1
    kept = []
    for owner in np.unique(lifetimes.owner[inside]).tolist():
        rows = inside[lifetimes.owner[inside] == owner]
        if len(np.unique(step[rows])) < _RECURRING_SHARE * steps:
            continue
        kept.append(Kept(owner, float(lifetimes.bytes[rows].sum()) / steps, heaviest_stack(lifetimes, rows)))
    return sorted(kept, key=lambda holder: -holder.bytes_per_step)


def heaviest_stack(lifetimes: Lifetimes, rows: I8) -> int:
    """The stack with most bytes among these blocks; -1 if none is known."""
    known = rows[lifetimes.stack[rows] >= 0]
    if not len(known):
        return -1
    stacks, index = np.unique(lifetimes.stack[known], return_inverse=True)
    return int(stacks[np.bincount(index, weights=lifetimes.bytes[known]).argmax()])


def _updates(ends: list[Mark]) -> list[Mark]:
    counts = Counter(mark.name for mark in ends if _UPDATE.fullmatch(mark.name))
    if not counts:
        return []
    name = counts.most_common(1)[0][0]
    return [mark for mark in ends if mark.name == name]
