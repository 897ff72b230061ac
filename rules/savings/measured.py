"""Speedups of work in the sizes of this run, for parts of the work that a fix makes faster, from the best source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct

from traceopt.analyzer.facts import Facts
from traceopt.result.experiments import Comparison, Matmul
from traceopt.rules.savings.price import Price
from traceopt.rules.savings.sources import Source

MOST_COMPARISONS = 8  # of a finding; others are as much faster as these on average
COVERED = 0.5  # of the time, that must have been measured


class Part(Struct, frozen=True):
    """Work of one size: its time in ns per step, and it before and after the fix; None if that cannot be measured.
    `calls` per step: 0 if the time of one is not known. `replaced`: the fix also removes what the part does beside the
    work that is measured, such as the Python of a loop.
    """

    time_ns: float
    comparison: Comparison | None
    calls: float = 0.0
    replaced: bool = False


class MeasuredWork(Struct, frozen=True):
    """Work by size. `speedup`: how many times as fast all of it is with the fix; None if too little was measured.
    `source`: that of most of the time.
    """

    parts: Sequence[Part]
    speedup: float | None
    source: Source = Source.DATASHEET

    def gains_ns(self, time_ns: float) -> tuple[float, float, float]:
        """What the fix saves of this time: low, expected and high. Only if the speedup is known."""
        left_ns = time_ns / (self.speedup or 1.0)
        low, expected, high = (time_ns - (1 + error) * left_ns for error in (self.source.error, 0, -self.source.error))
        return max(0.0, low), max(0.0, expected), max(0.0, high)

    @property
    def shares(self) -> tuple[float, float, float]:
        """What the fix saves of this time, as shares: low, expected and high. Only if the speedup is known."""
        return self.gains_ns(1.0)

    @property
    def words(self) -> str:
        """ "Measured on this device, in the sizes of this run: 2.1 times as fast". Only if the speedup is known."""
        return f"{self.source.words}: {self.speedup or 1.0:.1f} times as fast"

    @property
    def experiments(self) -> tuple[Comparison, ...]:
        """What to measure: the parts that take most of the time."""
        longest = sorted(self.parts, key=lambda part: -part.time_ns)
        wanted = dict.fromkeys(one.comparison for one in longest if one.comparison is not None)
        return tuple(wanted)[:MOST_COMPARISONS]


def measured(facts: Facts, parts: Sequence[Part]) -> MeasuredWork:
    """The parts with what was measured of them. Those that were not are as much faster as the others together."""
    known = [(part.time_ns, *found) for part in parts if (found := _speedup(facts, part)) is not None]
    took_ns = sum(time_ns for time_ns, _, _ in known)
    if not took_ns or took_ns < COVERED * sum(part.time_ns for part in parts):
        return MeasuredWork(parts, None)
    speedup = took_ns / sum(time_ns / speedup for time_ns, speedup, _ in known)
    of_source: dict[Source, float] = defaultdict(float)
    for time_ns, _, source in known:
        of_source[source] += time_ns
    return MeasuredWork(parts, speedup, max(of_source, key=lambda source: of_source[source]))


def gains_nothing(facts: Facts, price: Price | None) -> bool:
    """Whether a measurement on the device says that the fix saves nothing."""
    return price is not None and not price.est_ns and any(asked in facts.compared for asked in price.experiments)


def _speedup(facts: Facts, part: Part) -> tuple[float, Source] | None:
    """How many times as fast the part is with the fix, by the best source that knows it."""
    if part.comparison is None:
        return None
    after, answer = part.comparison.after, facts.compared.get(part.comparison)
    if part.calls and (same_ns := _in_this_trace(facts, after)) is not None:
        return part.time_ns / part.calls / same_ns, Source.TRACE
    if answer is not None:
        speedup = max(answer.speedup, part.time_ns / answer.after_ns) if part.replaced else answer.speedup
        return speedup, Source.DEVICE
    known_ns = facts.rates.ns(after) if facts.rates is not None and part.calls else None
    return None if known_ns is None else (part.time_ns / part.calls / known_ns, Source.KIND)


def _in_this_trace(facts: Facts, work: object) -> float | None:
    """What the device needed for the same matmul in this trace."""
    for shape in facts.gemms.shapes if isinstance(work, Matmul) else ():
        if work == shape.work:
            return shape.kernel_ns / shape.calls
    return None
