"""What a fused operator saves of attention that runs as separate operators on a CPU."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.vocabulary.op_names import is_softmax
from traceopt.analyzer.work.cpu_attention import CpuAttention
from traceopt.rules.savings.price import Price
from traceopt.rules.savings.pricing import priced_host
from traceopt.rules.savings.work.attention_experiments import fused_attention_work
from traceopt.rules.savings.work.cpu_experiments import measured_price

BASIS = "Assumes a fused operator, which removes the work between the matmuls but not the matmuls."
REPEATED = 1 / 6  # of the matmuls of a step (two forward, four backward): the fused backward repeats the first


class FusedAttention(Struct, frozen=True):
    """Times in ns per step: of the unfused attention, of what runs between its matmuls, and the expected saving, 0 if
    none is expected.
    """

    time_ns: float
    other_ns: float
    expected_ns: float
    price: Price | None


def fused_attention(facts: Facts, found: CpuAttention) -> FusedAttention:
    """The price of one operator in place of the calls that were found."""
    time_ns, product_ns = (facts.steps.mean_ns(area) for area in (found.area, found.products))
    other_ns = time_ns - product_ns
    repeated_ns = REPEATED * product_ns if facts.trains else 0.0
    low_ns, expected_ns = (max(0.0, share * other_ns - repeated_ns) for share in (0.6, 0.9))
    high_ns = 0.9 * other_ns + 0.3 * product_ns
    if not expected_ns:
        return FusedAttention(time_ns, other_ns, 0.0, None)
    shares = low_ns / time_ns, expected_ns / time_ns, high_ns / time_ns
    price = priced_host(facts, found.area, time_ns, shares, BASIS)
    measured = measured_price(facts, found.area, fused_attention_work(facts, _softmaxes(facts, found), time_ns), price)
    return FusedAttention(time_ns, other_ns, expected_ns, measured)


def _softmaxes(facts: Facts, found: CpuAttention) -> I8:
    """Of the forward pass (slices)."""
    forward = facts.regions.named(is_softmax, OP)
    rows = np.flatnonzero(forward)
    return rows[found.area.contains(facts.slices.start[rows])].astype(np.int64)
