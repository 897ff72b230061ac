"""What a fix saves that makes operators of a CPU-only run faster, and these operators as evidence."""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.analyzer.arrays.intervals import Intervals
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import Change, RemoveHost
from traceopt.analyzer.work.cpu_work import CpuOperator
from traceopt.result.finding import Evidence
from traceopt.result.words.message import named, per_second, percent
from traceopt.result.words.rounding import rate, us
from traceopt.rules.evidence import location_of
from traceopt.rules.savings.price import Price
from traceopt.rules.savings.pricing import priced

MOST_ROWS = 6


def operators_ns(facts: Facts, operators: Sequence[CpuOperator]) -> float:
    """The time per step in which these operators ran."""
    return facts.steps.mean_ns(facts.cpu_work.area(list(operators)))


def faster_operators(
    facts: Facts,
    speedups: Sequence[tuple[Sequence[CpuOperator], float]],
    shares: tuple[float, float, float],
    basis: str,
) -> Price | None:
    """Groups of operators each run so many times as fast; low, expected and high share of that gain. None without a
    gain.
    """
    return faster(facts, [(facts.cpu_work.area(list(one)), speedup) for one, speedup in speedups], shares, basis)


def faster(
    facts: Facts, speedups: Sequence[tuple[Intervals, float]], shares: tuple[float, float, float], basis: str
) -> Price | None:
    """The same of what runs in some areas."""
    gains = [
        (area, time_ns * (1 - 1 / speedup), 1 - 1 / speedup)
        for area, speedup in speedups
        if speedup > 1 and (time_ns := facts.steps.mean_ns(area)) > 0
    ]
    if not gains:
        return None
    gain_ns = sum(ns for _, ns, _ in gains)
    low, expected, high = shares

    def removed(part: float) -> list[Change]:
        return [RemoveHost(area, part * gain, faster=True) for area, _, gain in gains]

    return priced(
        facts,
        (low * gain_ns, expected * gain_ns, high * gain_ns),
        removed(expected),
        basis,
        low=removed(low),
        high=removed(high),
    )


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
