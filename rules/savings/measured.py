"""Speedups that were measured on the device, for parts of the work that a fix makes faster."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from traceopt.analyzer.facts import Facts
from traceopt.result.experiments import Comparison

MOST_COMPARISONS = 8  # of a finding; others are as much faster as these on average
MEASURED = "Measured on this device, in the sizes of this run"
COVERED = 0.5  # of the time, that must have been measured


class Part(Struct, frozen=True):
    """Work of one size: its time in ns per step, and it before and after the fix; None if that cannot be measured."""

    time_ns: float
    comparison: Comparison | None


class MeasuredWork(Struct, frozen=True):
    """Work by size. `speedup`: how many times as fast all of it is with the fix; None if too little was measured."""

    parts: Sequence[Part]
    speedup: float | None

    @property
    def experiments(self) -> tuple[Comparison, ...]:
        """What to measure: the parts that take most of the time."""
        longest = sorted(self.parts, key=lambda one: -one.time_ns)
        wanted = dict.fromkeys(one.comparison for one in longest if one.comparison is not None)
        return tuple(wanted)[:MOST_COMPARISONS]


def measured(facts: Facts, parts: Sequence[Part]) -> MeasuredWork:
    """The parts with what was measured on the device. Those that were not are as much faster as the others together."""
    answers = [(one.time_ns, facts.compared.get(one.comparison)) for one in parts if one.comparison is not None]
    known = [(time_ns, answer.speedup) for time_ns, answer in answers if answer is not None]
    took_ns = sum(time_ns for time_ns, _ in known)
    if not took_ns or took_ns < COVERED * sum(one.time_ns for one in parts):
        return MeasuredWork(parts, None)
    return MeasuredWork(parts, took_ns / sum(time_ns / speedup for time_ns, speedup in known))
