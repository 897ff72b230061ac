"""The phases of reinforcement learning that one process marks, and when its GPU worked."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.intervals import Intervals, union
from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.serving import serving_marks
from traceopt.result.finding import Location

PARTS = 1024  # of a recording; a phase ends somewhere in one of them
MOST_PAUSE = 10  # medians of a step of a serving engine; after a longer pause, the next rollout begins


class RankPhases(Struct, frozen=True):
    """When one process is in which phase, and how long its GPU works. Times in ns on the machine's clock.

    `phase` (index into `names`), `start` and `end` have a value for each interval. `busy_ns` is the GPU's busy time in
    each of PARTS equal parts of the recording; empty without GPU work. `places`: the line of the longest mark.
    """

    names: list[str]
    phase: I8
    start: I8
    end: I8
    places: dict[str, Location]
    recorded_from: int
    recorded_to: int
    busy_ns: I8

    def area(self, name: str) -> Intervals:
        """When the process is in this phase."""
        mine = self.phase == self.names.index(name) if name in self.names else np.zeros(len(self.phase), bool)
        return union(self.start[mine], self.end[mine])

    def idle_ns(self, area: Intervals) -> float | None:
        """How long the GPU is idle inside an area that was recorded; None without GPU work."""
        if not len(self.busy_ns):
            return None
        edges = np.linspace(self.recorded_from, self.recorded_to, len(self.busy_ns) + 1)
        before = np.append(0, np.cumsum(self.busy_ns))
        busy = np.interp(area.end, edges, before) - np.interp(area.start, edges, before)
        return float(np.maximum(0, area.length - busy).sum())


def find_rank_phases(facts: Facts) -> RankPhases | None:
    """None if the process marks no phase, or the file does not say when it was recorded.

    The steps of a serving engine that marks nothing are a rollout.
    """
    clock = facts.trace.meta.start_ns
    marks = facts.phase_marks
    areas: dict[str, Intervals] = {str(name): area for name, area in marks.areas.items()}
    if not areas and (rollout := _generation(facts)) is not None:
        areas["rollout"] = rollout
    if clock is None or not areas:
        return None
    sites = {name: facts.call_sites.most_frequent(np.array([row])) for name, row in marks.longest.items()}
    length = facts.trace.duration_ns
    return RankPhases(
        names=list(areas),
        phase=np.repeat(np.arange(len(areas)), [len(area) for area in areas.values()]),
        start=np.concatenate([area.start for area in areas.values()]) + clock,
        end=np.concatenate([area.end for area in areas.values()]) + clock,
        places={name: site for name, site in sites.items() if site is not None},
        recorded_from=clock,
        recorded_to=clock + length,
        busy_ns=_busy(facts, length),
    )


def _generation(facts: Facts) -> Intervals | None:
    """When a serving engine computes; None if none ran."""
    marks = serving_marks(facts.trace)
    if marks is None:
        return None
    longest = int(MOST_PAUSE * median(marks.end - marks.start))
    return union(marks.start, np.minimum(marks.end, marks.start + longest))


def _busy(facts: Facts, length: int) -> I8:
    if not facts.has_gpu:
        return np.empty(0, np.int64)
    work = facts.gpu.work
    edges = np.linspace(0, length, PARTS + 1).astype(np.int64)
    return union(work.start, work.end).within(edges[:-1], edges[1:])
