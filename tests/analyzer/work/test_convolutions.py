"""Convolutions: a bias before a batch norm, and shapes that repeat in every step."""

from __future__ import annotations

from typing import Any

from support.facts import facts_of

from traceopt.testing.events import Json, op

BIAS: Any = [[8, 3, 32, 32], [16, 3, 3, 3], [16]]
NO_BIAS: Any = [[8, 3, 32, 32], [16, 3, 3, 3], []]


def conv(at: float, dims: Any, then: str) -> list[Json]:
    return [
        op("aten::conv2d", at, 20, **{"Input Dims": dims}),
        op("aten::convolution", at + 5, 10, **{"Input Dims": dims}),
        op(then, at + 30, 5),
    ]


def test_a_bias_before_a_norm() -> None:
    norm = "aten::batch_norm"
    facts = facts_of([*conv(0, BIAS, norm), *conv(100, BIAS, "aten::relu"), *conv(200, NO_BIAS, norm)])
    found = facts.convolutions
    assert facts.slices.start[found.with_bias].tolist() == [0, 100_000]
    assert found.before_norm.tolist() == [True, False]


def test_shapes_that_repeat() -> None:
    first = [*conv(0, BIAS, "aten::relu"), *conv(100, NO_BIAS, "aten::relu")]
    again = [*conv(1_000, NO_BIAS, "aten::relu"), *conv(1_100, BIAS, "aten::relu")]
    assert facts_of(first, again, steps=2).convolutions.repeated_shapes == 2
    other = [*conv(1_000, BIAS, "aten::relu"), *conv(1_100, BIAS, "aten::relu")]
    assert facts_of(first, other, steps=2).convolutions.repeated_shapes == 0
    assert facts_of([op("aten::mm", 0, 5)]).convolutions.repeated_shapes == 0
