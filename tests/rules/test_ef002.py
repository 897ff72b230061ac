"""EF002 slow-steps: find out why some steps are slow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext
from statistics import mean, median

import pytest
from support.findings import RULES, found
from support.recorded_facts import answer, finding, generated
from support.step_lengths import steps_of
from support.traces import GetExample

from traceopt.analyzer.facts import Facts
from traceopt.result.words.message import plain
from traceopt.testing import Machine
from traceopt.testing import events as small_traces


class TestSlowSteps:
    def test_fires_and_names_the_cause(self, example: GetExample) -> None:
        subject = example("slow_steps")
        (finding,) = found("EF002", subject.facts)
        cost_us = mean(subject.planted.step_us) - median(subject.planted.step_us)
        (cost_ms,) = re.findall(r"That costs ([\d.]+) ms per step on average", finding.why)
        assert 1e3 * float(cost_ms) == pytest.approx(cost_us, rel=0.05)
        assert finding.saving is None  # DL005 knows the fix
        assert "waiting for data" in finding.why
        assert finding.confidence == "high"
        assert subject.planted.site in [str(location) for location in finding.locations]

    def test_silent_on_the_fixed_twin(self, example: GetExample) -> None:
        facts = example("slow_steps", fixed=True).facts
        assert found("EF002", facts) == []
        assert "slowest of 8 steps" in plain(RULES["EF002"].passed(facts))

    @pytest.mark.parametrize(("scenario", "code"), [("recompilation", "LB004"), ("module_load", "LB005")])
    def test_a_rule_that_knows_the_fix_comes_first(self, example: GetExample, scenario: str, code: str) -> None:
        assert [row.code for row in example(scenario).result.plan] == [code]

    def test_a_period_needs_three(self) -> None:
        usual, slow = 10_000.0, 20_000.0
        (three,) = found("EF002", steps_of([usual, slow, usual, usual] * 3))
        assert "every 4 steps" in three.why
        assert "That costs 2.5 ms per step on average." in three.why
        (two,) = found("EF002", steps_of([usual, slow, usual, usual] * 2))
        assert "every" not in two.why
        assert "That costs 2.5 ms per step on average." in two.why

    @pytest.mark.parametrize(("waited_us", "contended"), [(3e5, True), (1e4, False)])
    def test_steps_that_a_busy_machine_slows_cost_what_it_takes(self, waited_us: float, contended: bool) -> None:
        wait = {"us": waited_us, "cpu_us": 7e5, "wall_us": 1e6}
        run = {"ledger": {"step_us": [10_000.0] * 20, "core_wait": wait}}
        (finding,) = found("EF002", steps_of([10_000.0, 20_000.0, 10_000.0, 10_000.0] * 3, traceopt=run))
        assert ("That costs" in finding.why) is not contended
        assert ("waited for a free core for 30% of the run" in finding.why) is contended
        assert finding.shares_cause_with == (["PY002"] if contended else [])

    def test_the_first_step_is_start_up_and_one_other_no_cost(self) -> None:
        (finding,) = found("EF002", steps_of([20_000.0, 10_000.0, 10_000.0, 10_000.0] * 2))
        assert "That costs" not in finding.why

    def test_one_slow_step_may_be_a_one_off(self) -> None:
        (finding,) = found("EF002", steps_of([10_000.0] * 5 + [20_000.0]))
        assert "That costs" not in finding.why
        assert found("EF002", steps_of([20_000.0] + [10_000.0] * 5)) == []

    @pytest.mark.parametrize(("long_us", "places"), [(60_000.0, ["vae.py:85"]), (40_000.0, [])])
    def test_a_recorded_long_step_ends_where_those_of_the_run_do(self, long_us: float, places: list[str]) -> None:
        """A step is long from five times the usual one on; the trace has no place for what it did."""
        ends = [{"file": "vae.py", "line": 85, "function": "train", "count": 9, "us": 9 * long_us}]
        ledger = {"step_us": [10_000.0] * 20, "long_steps": ends}
        (finding,) = found("EF002", steps_of([10_000.0] * 5 + [long_us], traceopt={"ledger": ledger}))
        assert [str(location) for location in finding.locations] == places
        assert finding.fix.text.endswith("The long steps end at the line named here.") == bool(places)

    def test_steps_with_different_causes_are_told_apart(self) -> None:
        """The mean of both would blame one cause, and advise on neither."""
        machine = Machine({"id": 0, "name": "NVIDIA A100-SXM4-40GB"})
        for index in range(8):
            with machine.step():
                if index == 3:
                    with machine.annotate("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"):
                        machine.idle(20_000)
                if index == 5:
                    with machine.python("train.py(9): train"), machine.python("<built-in function collect>"):
                        machine.idle(14_000)
                machine.launch(9_000)
                machine.synchronize()
        (finding,) = found("EF002", machine.facts())
        assert "They have different causes: waiting for data grew by 20." in finding.why
        assert " in ProfilerStep#3; garbage collection grew by 14." in finding.why
        assert finding.fix.text.startswith("Waiting for data: load data in enough worker processes")
        assert "Garbage collection: freeze long-lived objects" in finding.fix.text
        assert set(finding.shares_cause_with) == {"DL005", "PY001"}

    def test_a_host_that_launches_the_same_work_later_is_not_told_to_look_for_other_work(self) -> None:
        machine = Machine({"id": 0, "name": "NVIDIA A100-SXM4-40GB"})
        for index in range(8):
            with machine.step():
                for _ in range(100):
                    start = machine.now
                    machine.idle(250 if index == 4 else 20)
                    machine.launch(90)
                    machine.events.append(small_traces.op("aten::mm", start, machine.now - start))
                machine.synchronize()
        (finding,) = found("EF002", machine.facts())
        assert "The part that grew most is launching GPU work" in finding.why
        assert "launches the same GPU work more slowly" in finding.fix.text
        assert "evaluation" not in finding.fix.text
        assert finding.confidence == "low"

    @pytest.mark.parametrize("with_frames", [True, False])
    def test_an_evaluation_is_no_longer_sequence(self, with_frames: bool) -> None:
        """One step also evaluates: its function is named if frames were recorded."""
        machine = Machine({"id": 0, "name": "NVIDIA A100-SXM4-40GB"})
        for index in range(8):
            with machine.step(), machine.python("train.py(5): step") if with_frames else nullcontext():
                machine.launch(9_000)
                with machine.python("train.py(63): validate") if with_frames and index == 4 else nullcontext():
                    for _ in range(20 if index == 4 else 0):
                        machine.launch(2_000)
                machine.synchronize()
        facts = machine.facts()
        (finding,) = found("EF002", facts)
        assert "Bucket" not in finding.fix.text
        assert ("validate() runs only in slow steps" in finding.why) is with_frames
        assert [str(location) for location in finding.locations] == ["train.py:63"] * with_frames

    def test_more_work_is_no_waste(self) -> None:
        (finding,) = found("EF002", steps_of([10_000.0, 20_000.0, 10_000.0, 10_000.0, 20_000.0, 10_000.0], work=0.95))
        assert "compute kernels" in finding.why
        assert "That costs" not in finding.why

    def test_a_wide_spread_or_few_steps_are_not_judged(self) -> None:
        assert found("EF002", steps_of([8_000.0, 12_000.0, 9_000.0, 14_000.0, 10_000.0, 13_000.0], work=0.5)) == []
        assert "Too few recorded steps" in (RULES["EF002"].applies(steps_of([10_000.0, 20_000.0, 10_000.0])) or "")


class TestIntervals:
    """EF002: steps outside of the trace."""

    def facts(self, every: int, disturbed: Sequence[int] = (), **parts: list[float]) -> Facts:
        slow = [30_000.0 if step % every == 0 else 10_000.0 for step in range(40)]
        for step in disturbed:
            slow[step] = 13_000.0
        change = {"ledger.step_us": slow, "ledger.windows": [], "ledger.fetch_us": None}
        return generated("healthy", change=change | {f"ledger.{name}": value for name, value in parts.items()})

    def test_a_regular_interval_is_told(self) -> None:
        found = finding(self.facts(every=5), "EF002")
        assert "one step in 5 takes 30.0 ms instead of 10.0 ms" in found.why
        assert found.confidence == "low"

    def test_small_disturbances_do_not_hide_the_interval(self) -> None:
        found = finding(self.facts(every=8, disturbed=[1, 3, 9, 14, 22, 27, 35]), "EF002")
        assert "one step in 8 takes 30.0 ms instead of 10.0 ms" in found.why

    def test_slow_steps_at_random_are_no_interval(self) -> None:
        assert answer(self.facts(every=50, disturbed=[1, 3, 9, 14, 22, 27, 35]), "EF002")[1] == []

    def test_what_the_loader_takes_is_another_rule_s(self) -> None:
        fetch_us = [20_000.0 if step % 5 == 0 else 1.0 for step in range(40)]
        assert answer(self.facts(every=5, fetch_us=fetch_us), "EF002")[1] == []

    def test_few_slow_steps_are_no_interval(self) -> None:
        assert answer(self.facts(every=19), "EF002")[1] == []


@pytest.mark.parametrize("scenario", ["healthy", "hidden_host_work", "cuda_graph", "slow_loader", "cold_start"])
def test_silent_without_its_fault(example: GetExample, scenario: str) -> None:
    assert found("EF002", example(scenario).facts) == []
