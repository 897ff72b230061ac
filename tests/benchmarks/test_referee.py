"""The referee: what counts as right, and what the adapters read from the output of each tool."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.referee.__main__ import Answer, Score
from benchmarks.referee.cases import Case, recorded
from benchmarks.referee.causes import HEALTHY, PLANTED, RECORDED, SIDE_OF_CAUSE
from benchmarks.referee.plugin_answers import causes_of as causes_of_texts
from benchmarks.referee.table_answers import causes_of, rows_of
from benchmarks.referee.traceopt_answers import CAUSE_OF_RULE, cause_of
from fixtures.scenarios import SCENARIOS

CASE = Case("slow_loader", "simulated", (Path("rank0.json.gz"),), "input", "data.py:41", 1_000.0)


def score(case: Case, **answer: object) -> Score:
    one = Score()
    one.add(case, Answer.of(answer))
    return one


def test_every_label_has_a_side_and_every_rule_a_cause() -> None:
    assert {*PLANTED.values(), *RECORDED.values(), *CAUSE_OF_RULE.values()} == set(SIDE_OF_CAUSE)
    assert {*PLANTED, *HEALTHY} <= set(SCENARIOS)
    assert {cause_of(code) for name in PLANTED for code in SCENARIOS[name].codes if code[:2] != "TQ"} <= set(
        SIDE_OF_CAUSE
    )


def test_a_right_answer_counts_for_cause_side_place_and_gain() -> None:
    right = score(CASE, causes=["input"], places=[["data.py:41"]], gains_us=[900.0])
    assert (right.cause, right.side, right.place) == (1, 1, 1)
    assert right.gain_errors == [pytest.approx(0.1)]
    same_side = score(CASE, causes=["python", "input"], places=[["data.py:41"], []], gains_us=[900.0, 900.0])
    assert (same_side.cause, same_side.side, same_side.place, same_side.gain_errors) == (0, 1, 0, [])
    assert (score(CASE, sides=["host"]).side, score(CASE, sides=["gpu"]).side) == (1, 0)


def test_a_false_alarm_is_any_cause_of_a_healthy_job_and_the_removed_one_of_a_twin() -> None:
    healthy = Case("healthy", "simulated", CASE.paths, None)
    twin = Case("slow_loader_fixed", "simulated", CASE.paths, None, removed="input")
    alarms = [score(case, causes=["fusion"]).alarms for case in (healthy, twin)]
    assert alarms == [1, 0]
    assert [score(case, causes=["input"]).alarms for case in (healthy, twin)] == [1, 1]
    assert score(healthy).alarms == 0


def test_what_a_tool_does_not_claim_is_not_wrong() -> None:
    assert score(CASE, sides=["host"]).cells(("side",)).count("not claimed") == 4


def test_the_recommendations_of_the_plugin() -> None:
    text = "This run has high time cost on input data loading. 40.0% of the step time is in DataLoader."
    assert causes_of_texts([text, text, "GPU 0 has low utilization."]) == ["input", "launching"]


def test_thumb_rules_read_the_first_rows_of_the_table() -> None:
    rows = Counter(
        {"enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__": 600.0, "aten::mm": 300.0, "other": 5.0}
    )
    assert causes_of(rows) == ["input"]
    event = {"ph": "X", "tid": 1, "cat": "cpu_op"}
    events = [{**event, "name": "outer", "ts": 0, "dur": 10}, {**event, "name": "aten::item", "ts": 2, "dur": 8}]
    assert rows_of(events) == {"outer": 2, "aten::item": 8}


def test_the_recorded_cases_have_the_gain_that_was_measured() -> None:
    gains = {case.name: case.gain_us for case in recorded()}
    assert set(gains) == set(RECORDED)
    assert all(gain is not None and gain > 0 for gain in gains.values())
