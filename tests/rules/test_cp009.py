"""CP009 slow-norm: write out norms along a leading dimension."""

from __future__ import annotations

from typing import Any

import pytest
from support.cpu_work import facts, finding, silent

from traceopt.analyzer.vocabulary.op_names import VECTOR_NORM
from traceopt.testing import events as build


def norm(size: list[int], reduced: str, duration: float, order: str = "2") -> build.Json:
    arguments: dict[str, Any] = {"Input Dims": [size, [], [], [], []], "Input type": ["float"]}
    return build.op(VECTOR_NORM, 0, duration, **arguments, **{"Concrete Inputs": ["", order, reduced, "False", ""]})


def test_it_fires_on_a_norm_of_two_numbers_along_the_first_dimension() -> None:
    """50,000 results, at 100 ns each."""
    found = finding("CP009", facts(norm([2, 50, 1_000], "[0]", 5_000)))
    assert found.saving is not None
    assert found.saving.est_us == pytest.approx(0.9 * 0.95 * 5_000, rel=0.01)
    assert found.why.endswith("take 5.0 ms of each 10.0 ms step.")


@pytest.mark.parametrize(
    "one",
    [
        norm([50, 1_000, 2], "[-1]", 5_000),
        norm([50, 1_000, 2], "[2]", 5_000),
        norm([2, 50, 1_000], "[]", 5_000),
        norm([2, 50, 1_000], "[0]", 5_000, order="1"),
        norm([2, 500, 1_000], "[0]", 5_000),  # 10 ns a result
        norm([2, 50, 1_000], "[0]", 400),
    ],
)
def test_it_is_silent_on_other_norms(one: build.Json) -> None:
    assert silent("CP009", facts(one))
