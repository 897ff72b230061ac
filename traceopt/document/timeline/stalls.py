"""The longest stalls of some steps with their causes and lines."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.attribution.stalls import long_gaps, long_stretches
from traceopt.analyzer.facts import Facts
from traceopt.result.sections.timeline_rows import Stall
from traceopt.result.words.rounding import us
from traceopt.rules.evidence import locations_of


def find_stalls(facts: Facts, steps: npt.NDArray[np.integer], zero_ns: int) -> list[Stall]:
    """The stalls of some recorded steps with their causes, longest first. `zero_ns`: what their starts count from."""
    every = facts.of_every_step
    found = _gpu_stalls(every, steps, zero_ns) if facts.has_gpu else _cpu_stalls(every, steps, zero_ns)
    return sorted(found, key=lambda stall: -stall.duration_us)


def _gpu_stalls(facts: Facts, steps: npt.NDArray[np.integer], zero_ns: int) -> list[Stall]:
    """The longest idle gaps of each step, each with its main cause and what the host did in the middle of it."""
    gaps = facts.gaps
    rows = long_gaps(gaps, facts.steps, steps)
    middle = (gaps.start[rows] + gaps.starved_end[rows]) // 2
    hosts = facts.slices.at_threads(gaps.thread[rows], middle)
    places, causes = locations_of(facts, hosts.tolist()), facts.idle.main_causes(rows)
    return [
        Stall(us(start - zero_ns), us(end - start), cause.key, facts.label(cause), place)
        for start, end, cause, place in zip(gaps.start[rows], gaps.end[rows], causes, places, strict=True)
    ]


def _cpu_stalls(facts: Facts, steps: npt.NDArray[np.integer], zero_ns: int) -> list[Stall]:
    return [
        Stall(
            us(stretch.start - zero_ns), us(stretch.end - stretch.start), stretch.cause.key, facts.label(stretch.cause)
        )
        for stretch in long_stretches(facts.cpu_phases, steps)
    ]
