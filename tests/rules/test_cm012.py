"""CM012 uneven-stages: move layers away from the slowest pipeline stage."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.pipelines import gpipe, interleaved, one_forward_one_backward, timed, zero_bubble
from tests.support.pipelines import Order, orders, result_of
from tests.support.ranks import check_of


@pytest.mark.parametrize("order", [gpipe, one_forward_one_backward, interleaved, zero_bubble])
def test_fires_first_on_the_slow_stage_with_what_equal_stages_save(order: Order, tmp_path: Path) -> None:
    schedule, weights = orders(order, 4, 8), [1.0, 1.0, 1.5, 1.0]
    result = result_of(schedule, tmp_path, weights)
    first = result.findings[0]
    assert (first.code, first.ranks) == ("CM012", [2])
    planted, equal = (max(mine[-1].end for mine in timed(schedule, each)) for each in (weights, [1.125] * 4))
    assert first.saving is not None
    assert first.saving.share == pytest.approx((planted - equal) / planted, rel=0.15)


def test_silent_on_equal_stages(tmp_path: Path) -> None:
    check = check_of(result_of(orders(one_forward_one_backward, 2, 4), tmp_path), "CM012")
    assert check.status == "passed"
    assert check.reason.startswith("Stages that compute equally long would save 0")


def test_needs_all_stages(tmp_path: Path) -> None:
    schedule, weights = orders(one_forward_one_backward, 3, 4), [1.0, 1.0, 1.5]
    result = result_of(schedule, tmp_path, weights, missing=1)
    assert check_of(result, "CM012").reason == "Not all stages of a pipeline are recorded."
    assert [row.rank for row in result.communication.pipeline] == [0, 2]
