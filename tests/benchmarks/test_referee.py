"""The referee: what counts as right, and what the adapters read from the output of each tool."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.referee import cases, hta_answers
from benchmarks.referee.__main__ import Answer, Score
from benchmarks.referee.cases import Case, Fault, recorded, simulated
from benchmarks.referee.causes import HEALTHY, PLANTED, RECORDED, RECORDED_HERE, SIDE_OF_CAUSE
from benchmarks.referee.pattern_answers import CAUSES as CAUSES_OF_PATTERNS
from benchmarks.referee.plugin_answers import causes_of as causes_of_texts
from benchmarks.referee.table_answers import causes_of, rows_of
from benchmarks.referee.traceopt_answers import CAUSE_OF_RULE, cause_of
from fixtures.scenarios import SCENARIOS
from fixtures.workloads.pairs import PAIRS, Pair

PATHS = (Path("rank0.json.gz"),)
CASE = Case("slow_loader", "simulated", PATHS, (Fault("input", 1_000.0, ("data.py:41",)),))


def score(case: Case, causes: frozenset[str] = frozenset(SIDE_OF_CAUSE), /, **answer: object) -> Score:
    one = Score(causes)
    one.add(case, Answer.of(answer))
    return one


def test_every_label_has_a_side_and_every_rule_a_cause() -> None:
    causes = {*PLANTED.values(), *RECORDED.values(), *RECORDED_HERE.values(), *CAUSE_OF_RULE.values()}
    assert causes == set(SIDE_OF_CAUSE)
    assert {cause for _, cause in CAUSES_OF_PATTERNS} <= causes
    assert {*PLANTED, *HEALTHY} <= set(SCENARIOS)
    assert set(RECORDED_HERE) <= {pair.name for pair in PAIRS if pair.on_cpu and pair.ranks == 1}


@pytest.mark.parametrize("name", PLANTED)
def test_the_rules_for_a_planted_fault_name_its_cause(name: str) -> None:
    assert {cause_of(code) for code in SCENARIOS[name].codes if code[:2] != "TQ"} == {PLANTED[name]}


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    """Of jobs whose healthy twin has other faults."""
    names = ("grad_scaler", "float64", "healthy")
    return {case.name: case for case in simulated(tmp_path_factory.mktemp("cases"), names=names)}


def test_the_dearest_fault_is_the_label_even_if_another_one_is_planted(labels: dict[str, Case]) -> None:
    costs = {fault.cause: fault.cost_us or 0.0 for fault in labels["grad_scaler"].faults}
    assert list(costs) == ["optimizer", "launching", "host sync"]
    assert costs["optimizer"] > 2 * costs["host sync"]


def test_a_fault_that_a_twin_really_has_is_no_false_alarm(labels: dict[str, Case]) -> None:
    twin = labels["float64_fixed"]
    assert {"precision", "copies"} <= {fault.cause for fault in twin.faults}
    assert not twin.is_alarm("precision")
    assert score(twin, causes=["precision"]).alarms_of == 0
    assert labels["healthy"].faults == ()


def test_a_right_answer_counts_for_cause_side_place_and_gain() -> None:
    answer = {"places": [["a/data.py:41"], []], "gains_us": [900.0, 900.0], "ranges_us": [[800.0, 990.0], [0.0, 0.0]]}
    right = score(CASE, causes=["input"], **answer)
    assert (right.cause, right.side, right.place, right.within) == (1, 1, 1, 0)
    assert right.gain_errors == [pytest.approx(0.1)]
    same_side = score(CASE, causes=["python", "input"], **answer)
    assert (same_side.cause, same_side.side, same_side.place, same_side.gain_errors) == (0, 1, 0, [])
    assert (score(CASE, sides=["host"]).side, score(CASE, sides=["gpu"]).side) == (1, 0)


def test_a_false_alarm_is_any_cause_of_a_healthy_job_and_the_removed_one_of_a_twin() -> None:
    healthy = Case("healthy", "simulated", PATHS, is_healthy=True)
    twin = Case("slow_loader_fixed", "simulated", PATHS, removed="input", is_healthy=True)
    alarms = [score(case, causes=["fusion"]).alarms for case in (healthy, twin)]
    assert alarms == [1, 0]
    assert [score(case, causes=["input"]).alarms for case in (healthy, twin)] == [1, 1]
    assert score(healthy).alarms == 0


def test_what_a_tool_does_not_claim_is_not_wrong() -> None:
    assert score(CASE, sides=["host"]).cells(("side",)).count("not claimed") == 5
    some = score(CASE, frozenset({"precision"}))
    assert some.cells(("cause",))[1] == "0 of 1 (1 not claimed)"
    twin = Case("slow_loader_fixed", "simulated", PATHS, removed="input", is_healthy=True)
    assert score(twin, frozenset({"precision"})).alarms_of == 0


def test_the_recommendations_of_the_plugin() -> None:
    text = "This run has high time cost on input data loading. 40.0% of the step time is in DataLoader."
    assert causes_of_texts([text, text, "GPU 0 has low utilization."]) == ["input", "launching"]


class _Hta:
    """The two tables of HolisticTraceAnalysis that the adapter reads of every trace, for ranks that communicate."""

    def __init__(self, idle_percent: float, alone_percent: dict[str, float], of_ranks_us: list[float]) -> None:
        self._idle_percent, self._alone_percent, self._of_ranks_us = idle_percent, alone_percent, of_ranks_us

    def get_temporal_breakdown(self, **_: object) -> pd.DataFrame:
        return pd.DataFrame({"idle_time_pctg": [self._idle_percent]})

    def get_gpu_kernel_breakdown(self, **_: object) -> tuple[pd.DataFrame, pd.DataFrame]:
        types = pd.DataFrame(
            {"kernel_type": list(self._alone_percent), "percentage": list(self._alone_percent.values())}
        )
        ranks = list(range(len(self._of_ranks_us)))
        kernels = pd.DataFrame({"rank": ranks, "kernel_type": "COMMUNICATION", "sum (us)": self._of_ranks_us})
        return types, kernels


def test_hta_shows_what_overlaps_nothing_and_ranks_that_differ() -> None:
    alone = {"COMPUTATION": 50.0, "COMMUNICATION": 30.0, "MEMORY": 20.0}
    even = hta_answers.shares_of(_Hta(50.0, alone, [100.0, 110.0]))
    assert even == {"host": 0.5, "communication": pytest.approx(0.15), "copies": pytest.approx(0.1)}
    uneven = hta_answers.shares_of(_Hta(0.0, alone, [100.0, 200.0]))
    assert uneven["imbalance"] == pytest.approx(0.3)
    assert "communication" not in uneven


def test_thumb_rules_read_the_first_rows_of_the_table() -> None:
    rows = Counter(
        {"enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__": 600.0, "aten::mm": 300.0, "other": 5.0}
    )
    assert causes_of(rows) == ["input"]
    event = {"ph": "X", "tid": 1, "cat": "cpu_op"}
    events = [{**event, "name": "outer", "ts": 0, "dur": 10}, {**event, "name": "aten::item", "ts": 2, "dur": 8}]
    assert rows_of(events) == {"outer": 2, "aten::item": 8}


def test_the_recorded_cases_have_the_gain_that_was_measured() -> None:
    gains = {case.name: case.faults[0].cost_us for case in recorded()}
    assert set(gains) == set(RECORDED)
    assert all(gain is not None and gain > 0 for gain in gains.values())


def test_a_pair_that_cannot_be_recorded_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def record(pair: Pair, variant: str, folder: Path, **_: object) -> dict[str, float]:
        if pair.name == "gc_each_step":
            raise RuntimeError("exit code 1")
        folder.mkdir(parents=True)
        (folder / "trace.json.gz").touch()
        return {"step_us": 100.0 if variant == "plain" else 70.0}

    monkeypatch.setattr(cases, "record", record)
    made = {case.name: case for case in cases.recorded_here(tmp_path)}
    assert "gc_each_step is left out: exit code 1" in capsys.readouterr().err
    assert not any(name.startswith("gc_each_step") for name in made)
    slow, fast = made["double_precision, plain"], made["double_precision, fixed"]
    assert [(fault.cause, fault.cost_us) for fault in slow.faults] == [("precision", 30.0)]
    assert fast.is_alarm("precision")
    assert not fast.is_alarm("input")
    assert "--fixed" in (fast.paths[0].parent / "script.json").read_text()
