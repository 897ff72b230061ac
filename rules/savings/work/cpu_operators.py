"""What a fix saves that makes operators of a CPU-only run faster, and these operators as evidence."""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.analyzer.arrays.intervals import Intervals
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import RemoveHost
from traceopt.analyzer.work.cpu_work import CpuOperator
from traceopt.result.finding import Evidence
from traceopt.result.words.message import named, per_second, percent
from traceopt.result.words.rounding import rate, us
from traceopt.rules.evidence import location_of
from traceopt.rules.savings.price import Price
from traceopt.rules.savings.pricing import priced

MOST_ROWS = 6

Gains = tuple[float, float, float]  # shares of a time that go: low, expected, high


def operators_ns(facts: Facts, operators: Sequence[CpuOperator]) -> float:
    """The time per step in which these operators ran."""
    return facts.steps.mean_ns(facts.cpu_work.area(list(operators)))


def faster_operators(
    facts: Facts, speedups: Sequence[tuple[Sequence[CpuOperator], float]], shares: Gains, basis: str
) -> Price | None:
    """Groups of operators each run so many times as fast; low, expected and high share of that gain. None without a
    gain.
    """
    return faster(facts, [(facts.cpu_work.area(list(one)), speedup) for one, speedup in speedups], shares, basis)


def faster(facts: Facts, speedups: Sequence[tuple[Intervals, float]], shares: Gains, basis: str) -> Price | None:
    """The same of what runs in some areas."""
    low, expected, high = shares
    gains = [(area, 1 - 1 / speedup) for area, speedup in speedups if speedup > 1]
    return shortened(facts, [(area, (low * gain, expected * gain, high * gain)) for area, gain in gains], basis)


def shortened(facts: Facts, parts: Sequence[tuple[Intervals, Gains]], basis: str) -> Price | None:
    """What runs in each of these areas takes so much less of its time. None without a gain."""
    timed = [(area, gains, time_ns) for area, gains in parts if (time_ns := facts.steps.mean_ns(area)) > 0]
    if not timed:
        return None
    low, expected, high = ([RemoveHost(area, gains[end], faster=True) for area, gains, _ in timed] for end in range(3))
    least_ns, usual_ns, most_ns = (sum(time_ns * gains[end] for _, gains, time_ns in timed) for end in range(3))
    return priced(facts, (least_ns, usual_ns, most_ns), expected, basis, low=low, high=high)


def operator_evidence(facts: Facts, operators: Sequence[CpuOperator]) -> list[Evidence]:
    """A row for each operator: time, calls, dtype, achieved rate."""
    return [
        Evidence(
            named(operator.name),
            us(operator.duration_ns / facts.steps.count),
            rate(len(operator.rows) / facts.steps.count),
            _detail(facts, operator),
            location_of(facts, int(operator.rows[0])),
        )
        for operator in operators[:MOST_ROWS]
    ]


def _detail(facts: Facts, operator: CpuOperator) -> str | None:
    parts = [operator.dtype] if operator.dtype else []
    if operator.gflops is not None:
        parts.append(per_second(operator.gflops, "GFLOP"))
    share = facts.cpu_work.peak_share(operator)
    if share is not None:
        parts.append(f"{percent(share)} of the measured peak")
    return ", ".join(parts) or None
