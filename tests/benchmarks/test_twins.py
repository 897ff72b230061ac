"""The table of `traceopt try` against twins by hand: what agrees, and which fixes are tried."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace
from support.traces import GetExample

from benchmarks import twins
from fixtures.workloads.pairs import PAIRS
from traceopt.result.finding import Fix
from traceopt.result.trial import TriedChange
from traceopt.trying.rounds import ALSO_BUSY

[PAIR, *_] = PAIRS


def row(low: float | None, high: float | None, **more: Any) -> dict[str, Any]:
    known = {"name": "DL001", "via": "patch", "verdict": "keep", "predicted_us": 400.0, "before_us": 1000.0}
    gain = None if low is None or high is None else (low + high) / 2
    return {**known, "gain_share": gain, "low_share": low, "high_share": high, "losses": "identical", **more}


@pytest.mark.parametrize(
    ("fix", "twin", "same"),
    [
        ((0.1, 0.2), (0.15, 0.3), True),
        ((0.1, 0.2), (0.25, 0.3), False),
        ((0.3, 0.4), (0.1, 0.2), False),
        ((None, None), (0.1, 0.2), None),
    ],
)
def test_gains_agree_if_their_intervals_overlap(fix: tuple[Any, Any], twin: tuple[Any, Any], same: bool | None) -> None:
    assert twins.agree(row(*fix), row(*twin)) is same


def test_the_table_has_every_kind_of_row() -> None:
    workloads = {
        "slow_loader": {"fix": row(0.3, 0.4), "twin": row(0.35, 0.45)},
        "python_mask": {"code": "LB006", "twin": row(0.1, 0.2)},
        "healthy": {"fix": row(-0.01, 0.02, name="X=1", verdict="no_gain", predicted_us=None)},
    }
    assert twins.table(workloads)[2:] == [
        "| slow_loader | DL001 | patch | −40% | −35% ± 5.0% | −40% ± 5.0% | identical | keep | yes |",
        "| python_mask | LB006 | – | – | – | −15% ± 5.0% | – | no patch, no setting | – |",
        "| healthy | X=1 | patch | – | −0.5% ± 1.5% | – | identical | no gain | – |",
    ]


def test_the_first_rule_with_a_fix_that_can_be_made(example: GetExample) -> None:
    result = example("slow_loader").result
    assert [change.name for change in twins.fixes_of(result, PAIR)] == ["DL001"]
    by_hand = [replace(one, fix=Fix("Rewrite it")) if one.code == "DL001" else one for one in result.findings]
    assert not twins.fixes_of(replace(result, findings=by_hand), PAIR)


def test_a_disturbed_result_is_not_written() -> None:
    change = TriedChange("DL001", "fix", "", "patch", "keep", reason=f"much noise; {ALSO_BUSY}")
    with pytest.raises(twins.DisturbedError):
        twins._row(change)


def test_the_page_has_the_table() -> None:
    text = twins.PAGE.read_text(encoding="utf-8")
    workloads = json.loads(twins.DATA.read_text(encoding="utf-8"))["workloads"]
    assert twins.page(text, workloads) == text
    assert twins.page(text, {}) != text
