"""The phases of a reinforcement-learning step, and how long the GPU is idle in each."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.arrays.intervals import Intervals, intersect, merge, union
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import ANNOTATION, PYTHON
from traceopt.analyzer.timeline.gpu_work import GpuWork
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary.phases.rl_phases import PHASES, PhaseName, phase_of_annotation, phase_of_frame

MAX_SLICES = 100_000  # of all phases; a name that occurs more often is not one of a phase


class PhaseMarks(Struct, frozen=True):
    """When the marks of each phase cover a thread of this process, without phases inside them on that thread, ns.
    `longest`: the longest mark of each, a row of slices.
    """

    areas: dict[PhaseName, Intervals]
    longest: dict[PhaseName, int]


class RlPhase(Struct, frozen=True):
    """A phase: the time of its marks in the measured steps, ns. `idle_ns` is None where no GPU work was recorded.
    `slice`: its longest mark, a row of slices.
    """

    name: PhaseName
    area: Intervals
    total_ns: int
    idle_ns: int | None
    slice: int


def find_phase_marks(regions: Regions) -> PhaseMarks:
    """The marks of all phases in the order of a step, whether or not this is reinforcement learning."""
    slices = regions.slices
    phase = np.full(len(slices), -1)
    for index, name in enumerate(PHASES):
        phase[regions.named(lambda text, name=name: phase_of_annotation(text) == name, ANNOTATION)] = index  # type: ignore[misc]
        phase[regions.named(lambda text, name=name: phase_of_frame(text) == name, PYTHON)] = index  # type: ignore[misc]
    rows = np.flatnonzero((phase >= 0) & (slices.end > slices.start))
    if len(rows) > MAX_SLICES:
        return PhaseMarks({}, {})
    pieces: dict[int, list[Intervals]] = {}
    for thread in distinct_values(slices.thread[rows]):
        mine = rows[slices.thread[rows] == thread]
        for index, area in _own_time(slices.start[mine], slices.end[mine], phase[mine].tolist()).items():
            pieces.setdefault(index, []).append(area)
    areas, longest = {}, {}
    for index in sorted(pieces):
        mine = rows[phase[rows] == index]
        areas[PHASES[index]] = merge(*pieces[index])
        longest[PHASES[index]] = int(mine[slices.duration_of(mine).argmax()])
    return PhaseMarks(areas, longest)


def is_rl(phases: Collection[str]) -> bool:
    """Whether steps with these phases are reinforcement learning: a rollout, and something that only follows one."""
    return "rollout" in phases and not {"reward", "experience", "weight sync"}.isdisjoint(phases)


def find_rl_phases(marks: PhaseMarks, steps: Steps, gpu: GpuWork, *, has_gpu: bool) -> list[RlPhase]:
    """The phases in the order of a step; none if this is no reinforcement learning."""
    if not is_rl(marks.areas):
        return []
    made = []
    for name, marked in marks.areas.items():
        area = intersect(marked, steps.window)
        if area.total:
            idle = intersect(gpu.idle, area).total if has_gpu else None
            made.append(RlPhase(name, area, area.total, idle, marks.longest[name]))
    return made


def _own_time(start: I8, end: I8, phase: Sequence[int]) -> dict[int, Intervals]:
    """When each phase ran, without the phases inside it."""
    order = np.lexsort((-end, start)).tolist()
    pieces: dict[int, list[tuple[int, int]]] = {}
    open_: list[tuple[int, int]] = []  # end and phase of the slices around this time, innermost last
    now = 0

    def pass_to(time: int) -> int:
        if open_ and time > now:
            pieces.setdefault(open_[-1][1], []).append((now, time))
        return max(now, time)

    # A step has a few phases, so this loop is short, and only a stack knows which phase is the innermost.
    for row in order:
        while open_ and open_[-1][0] <= start[row]:
            now = pass_to(open_[-1][0])
            open_.pop()
        now = pass_to(int(start[row]))
        open_.append((int(end[row]), phase[row]))
    while open_:
        now = pass_to(open_[-1][0])
        open_.pop()
    return {
        index: union(np.array([a for a, _ in mine]), np.array([b for _, b in mine])) for index, mine in pieces.items()
    }
