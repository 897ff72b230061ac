"""What bfloat16 saves in the FP32 matmuls of a CPU-only run, by what was measured on its CPU."""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.work.cpu_work import CpuOperator
from traceopt.result.words.message import ms, percent
from traceopt.rules.savings.price import Price
from traceopt.rules.savings.pricing import priced_host
from traceopt.rules.savings.work.cpu_operators import operators_ns

CAST_BYTES = 4 + 2  # read and written for each element that is converted between FP32 and bfloat16


def bfloat16_price(facts: Facts, products: Sequence[CpuOperator], low: float, expected: float) -> Price | None:
    """`low` and `expected`: the share of the measured speedup's gain that matmuls reach, before the casts. None if the
    speedup or the rate of copies was not measured: without the latter it is unknown what the casts take.
    """
    work, time_ns = facts.cpu_work, operators_ns(facts, products)
    speedup = bfloat16_speedup(facts)
    if speedup is None or work.peaks is None or not work.peaks.copy_gb_per_s or not time_ns:
        return None
    elements = sum(int(work.elements(product).sum()) for product in products) / facts.steps.count
    casts_ns = CAST_BYTES * elements / work.peaks.copy_gb_per_s
    gain_ns = (1 - 1 / speedup) * time_ns
    low_ns, expected_ns = (max(0.0, share * gain_ns - casts_ns) for share in (low, expected))
    return priced_host(
        facts,
        work.area(list(products)),
        time_ns,
        (low_ns / time_ns, expected_ns / time_ns, gain_ns / time_ns),
        f"Assumes {percent(expected)} of the gain from the measured speedup of {speedup:.1f} times ({percent(low)} to "
        f"100%), less {ms(casts_ns)} for casts.",
        faster=True,
    )


def bfloat16_speedup(facts: Facts) -> float | None:
    """How many times as fast this CPU multiplies square matrices in bfloat16; None if that was not measured."""
    peaks = facts.cpu_work.peaks
    return None if peaks is None else peaks.speedup("fp32", "bf16")
