"""What a fix saves that makes operators of a CPU-only run faster, and these operators as evidence."""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import RemoveHost
from traceopt.analyzer.work.cpu_work import CpuOperator
from traceopt.result.finding import Evidence
from traceopt.result.quantities import per_second, percent
from traceopt.result.rounding import rate, us
from traceopt.rules.evidence import location_of
from traceopt.rules.savings.price import Price
from traceopt.rules.savings.pricing import priced

MOST_ROWS = 6


def operators_ns(facts: Facts, operators: Sequence[CpuOperator]) -> float:
    """The time per step in which these operators ran."""
    return facts.steps.mean_ns(facts.cpu_work.area(list(operators)))


def faster_operators(
    facts: Facts, operators: Sequence[CpuOperator], speedup: float, shares: tuple[float, float, float], basis: str
) -> Price | None:
    """The operators run `speedup` times as fast; low, expected and high share of that gain. None without a gain."""
    time_ns = operators_ns(facts, operators)
    if speedup <= 1 or not time_ns:
        return None
    area = facts.cpu_work.area(list(operators))
    low, expected, high = ((1 - 1 / speedup) * part for part in shares)
    return priced(
        facts,
        (low * time_ns, expected * time_ns, high * time_ns),
        [RemoveHost(area, expected)],
        basis,
        low=[RemoveHost(area, low)],
        high=[RemoveHost(area, high)],
    )


def operator_evidence(facts: Facts, operators: Sequence[CpuOperator]) -> list[Evidence]:
    """A row for each operator: time, calls, dtype, achieved rate."""
    return [
        Evidence(
            operator.name,
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
