"""The longest stalls of some steps: gaps without GPU work, or without model work on a CPU-only run."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.arrays.intervals import clip
from traceopt.analyzer.attribution.cpu_phases import PHASES
from traceopt.analyzer.attribution.idle import CAUSES
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replayed_parts import idle_labels
from traceopt.result.rounding import us
from traceopt.result.rows import Stall
from traceopt.rules.evidence import locations_of

SMALLEST_SHARE = 0.01  # of the step
MOST_PER_STEP = 20
_UNNAMED = ("python", "untraced")  # phases of a CPU-only run that name no cause


def find_stalls(facts: Facts, steps: npt.NDArray[np.integer], zero_ns: int) -> list[Stall]:
    """The stalls of some recorded steps with their causes, longest first. `zero_ns`: what their starts count from."""
    every = facts.of_every_step
    found = _gpu_stalls(every, steps, zero_ns) if facts.has_gpu else _cpu_stalls(every, steps, zero_ns)
    return sorted(found, key=lambda stall: -stall.duration_us)


def long_gaps(facts: Facts, steps: npt.NDArray[np.integer]) -> npt.NDArray[np.intp]:
    """Rows of the longest idle gaps of the GPU in these steps, the longest first. `facts`: of every step."""
    gaps = facts.gaps
    length = gaps.end - gaps.start
    long = length >= SMALLEST_SHARE * facts.steps.duration[np.maximum(gaps.step, 0)]
    rows = np.flatnonzero(np.isin(gaps.step, steps) & long)
    rows = rows[np.lexsort((-length[rows], gaps.step[rows]))]
    first = np.searchsorted(gaps.step[rows], gaps.step[rows])
    return rows[np.arange(len(rows)) - first < MOST_PER_STEP]


def _gpu_stalls(facts: Facts, steps: npt.NDArray[np.integer], zero_ns: int) -> list[Stall]:
    """The longest idle gaps of each step, each with its main cause and what the host did in the middle of it."""
    gaps, amount = facts.gaps, facts.idle.amount
    rows = long_gaps(facts, steps)
    length = gaps.end - gaps.start
    middle = (gaps.start[rows] + gaps.starved_end[rows]) // 2
    hosts = facts.slices.at_threads(gaps.thread[rows], middle)
    places = locations_of(facts, hosts.tolist())
    causes = [CAUSES[index] for index in amount[rows].argmax(axis=1).tolist()]
    labels = idle_labels(facts)
    return [
        Stall(us(start - zero_ns), us(ns), cause, labels[cause], place)
        for start, ns, cause, place in zip(gaps.start[rows], length[rows], causes, places, strict=True)
    ]


def _cpu_stalls(facts: Facts, steps: npt.NDArray[np.integer], zero_ns: int) -> list[Stall]:
    """The longest stretches of the main thread in named phases that are not model work."""
    stalls = []
    for step in steps.tolist():
        start, end = int(facts.steps.start[step]), int(facts.steps.end[step])
        mine = []
        for phase, label, busy in PHASES:
            if busy or phase in _UNNAMED:
                continue
            area = clip(facts.cpu_phases.areas[phase], start, end)
            mine += [
                Stall(us(a - zero_ns), us(b - a), phase, label)
                for a, b in zip(area.start, area.end, strict=True)
                if b - a >= SMALLEST_SHARE * (end - start)
            ]
        stalls += sorted(mine, key=lambda stall: -stall.duration_us)[:MOST_PER_STEP]
    return stalls
