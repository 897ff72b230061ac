"""EF028: a matrix that is almost all zero is multiplied as if it were full."""

from __future__ import annotations

from typing import Any

import pytest
from support.autograd_steps import Event, Shape, is_silent, node, operator, steps, the

from traceopt.analyzer.facts import Facts
from traceopt.rules.catalogue.ef028_mostly_zero_matmul import MostlyZeroMatmul

NODES, WIDTH = 3_000, 64
ADJACENCY = [NODES, NODES]


def layer(left: Shape, right: Shape, name: str = "aten::mm") -> list[Event]:
    """A matmul of 4 ms, and 5 ms in its backward pass."""
    return [operator(name, 100, 4_000, left, right, number=5), *node("MmBackward0", 6_000, 5_000, 5)]


def seen(*parts: list[Event], shape: Shape = ADJACENCY, share: float = 0.998) -> Facts:
    own: dict[str, Any] = {"environment": {"threads": 1}, "mostly_zero": [{"shape": list(shape), "share": share}]}
    return steps(*parts, traceopt=own)


def test_fires_on_the_matmul_and_its_backward_pass() -> None:
    found = the(MostlyZeroMatmul, seen(layer(ADJACENCY, [NODES, WIDTH])))
    assert "a matrix of up to 99.8% zeros take 9.0 ms of each 20.0 ms step" in found.why
    assert found.saving is not None
    assert found.saving.est_us == pytest.approx((1 - 30 * 0.002) * 9_000, rel=0.02)
    assert found.saving.low_us < (1 - 80 * 0.002) * 9_000 + 1


@pytest.mark.parametrize(
    ("left", "right", "shape", "name"),
    [
        pytest.param([8, 100, 2_000], [64, 2_000], [800, 2_000], "aten::linear", id="rows of a batch in a layer"),
        pytest.param([500, 700], [700, 9], [700, 500], "aten::matmul", id="transposed"),
    ],
)
def test_the_matrix_may_be_a_view(left: Shape, right: Shape, shape: Shape, name: str) -> None:
    found = the(MostlyZeroMatmul, seen(layer(left, right, name), shape=shape))
    assert found.saving is not None
    assert ("EmbeddingBag" if name == "aten::linear" else "to_sparse_csr") in str(found.fix.code)


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(steps(layer(ADJACENCY, [NODES, WIDTH])), id="nobody looked"),
        pytest.param(seen(layer([NODES, WIDTH], [WIDTH, WIDTH])), id="other matrices"),
        pytest.param(seen(layer(ADJACENCY, [NODES, WIDTH]), share=0.95), id="not empty enough to be faster"),
        pytest.param(seen(layer(ADJACENCY, [NODES, WIDTH], "aten::mul")), id="an elementwise mask"),
    ],
)
def test_silent_where_no_product_has_so_many_zeros(facts: Facts) -> None:
    assert is_silent(MostlyZeroMatmul, facts)
