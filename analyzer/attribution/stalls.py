"""The longest stalls of some steps: gaps without GPU work, or without model work on a CPU-only run."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.intervals import clip
from traceopt.analyzer.attribution.cpu_phases import CpuPhases
from traceopt.analyzer.attribution.idle import Gaps
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary.causes.cause import Cause
from traceopt.analyzer.vocabulary.causes.table import DISPATCH, PHASES

SMALLEST_SHARE = 0.01  # of the step
MOST_PER_STEP = 20
_STALLING = tuple(phase for phase in PHASES if not phase.busy and phase not in DISPATCH)


def long_gaps(gaps: Gaps, every: Steps, steps: npt.NDArray[np.integer]) -> npt.NDArray[np.intp]:
    """Rows of the longest idle gaps of the GPU in some of the recorded steps, the longest of each step first."""
    length = gaps.end - gaps.start
    long = length >= SMALLEST_SHARE * every.duration[np.maximum(gaps.step, 0)]
    rows = np.flatnonzero(np.isin(gaps.step, steps) & long)
    rows = rows[np.lexsort((-length[rows], gaps.step[rows]))]
    first = np.searchsorted(gaps.step[rows], gaps.step[rows])
    return rows[np.arange(len(rows)) - first < MOST_PER_STEP]


class Stretch(Struct, frozen=True):
    """A stretch of the main thread in one phase, ns."""

    start: int
    end: int
    cause: Cause


def long_stretches(phases: CpuPhases, steps: npt.NDArray[np.integer]) -> list[Stretch]:
    """The longest stretches of the main thread in phases of their own kind that are not model work."""
    found = []
    for step in steps.tolist():
        start, end = int(phases.steps.start[step]), int(phases.steps.end[step])
        areas = {phase: clip(phases.areas[phase], start, end) for phase in _STALLING}
        mine = [
            Stretch(first, last, phase)
            for phase, area in areas.items()
            for first, last in zip(area.start.tolist(), area.end.tolist(), strict=True)
            if last - first >= SMALLEST_SHARE * (end - start)
        ]
        found += sorted(mine, key=lambda one: one.start - one.end)[:MOST_PER_STEP]
    return found
