"""What does not happen in every step: saves, evaluation, slow steps at intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from recorded_facts import NOT_RECORDED, answer, document_of, finding, generated, reason

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.run_log.step_ledger import read_ledger
from traceopt.testing import events as build


class TestSaves:
    """LG003: what torch.save costs the run, wherever the recorded steps lie."""

    def facts(self, saves: list[Any]) -> Facts:
        change = {"ledger.saves": saves, "checkpoint": {"saves": len(saves), "us": 0.0}}
        return generated("healthy", warmup=20, stacks=False, change=change)

    def test_saves_outside_of_the_recorded_steps_are_spread_over_the_run(self) -> None:
        facts = self.facts([[step, 13_000.0] for step in (4, 9, 14, 19)])
        found = finding(facts, "LG003")
        assert (
            "4 of 26 steps, about once every 5 steps, for 13.0 ms each. On average that is 2.0 ms of each" in found.why
        )

    def test_one_save_is_no_habit(self) -> None:
        facts = self.facts([[9, 13_000.0]])
        assert "torch.save takes 3." in reason(facts, "LG003", "passed")

    def test_the_save_after_the_last_step_is_in_none(self) -> None:
        facts = self.facts([[26, 90_000_000.0], [27, 90_000_000.0]])
        assert reason(facts, "LG003", "passed") == "Saving checkpoints takes 0% of the measured steps."

    def test_a_save_in_every_step_is_priced_by_the_steps_without_a_profiler(self) -> None:
        """It takes 3 of 8 ms there, and 5 of 10 ms in the recorded steps: the profiler slows Python."""
        events = []
        for index in range(4):
            start = 10_000 * index
            events += [
                build.annotation(f"ProfilerStep#{20 + index}", start, 10_000),
                build.python("train.py(5): train", start, 10_000),
                build.op("aten::mm", start, 4_900),
                build.python("torch/serialization.py(944): save", start + 5_000, 5_000),
            ]
        ledger = {
            "step_us": [8_000.0] * 20 + [10_000.0] * 4,
            "windows": [{"cycle": "timing", "warmup_from": 20, "from": 20, "until": 24}],
            "saves": [[step, 3_000.0] for step in range(20)] + [[step, 5_000.0] for step in range(20, 24)],
        }
        header = {"cycle": {"name": "timing"}, "environment": {"torch": "2"}, "ledger": ledger}
        saving = finding(Facts(build.read(build.document(events, traceopt=header))), "LG003").saving
        assert saving is not None
        assert saving.est_us == pytest.approx(10_000 * 3 / 8, rel=0.02)
        assert saving.high_us == pytest.approx(5_000, rel=0.02)
        assert "without a profiler" in saving.basis

    @pytest.mark.parametrize("saves", ["saves", [3], [[3]], [[-1, 5.0]], [[1, math.nan]], [["1", 5.0]], [[1, 2, 3]]])
    def test_odd_saves_are_none(self, saves: Any) -> None:
        ledger = read_ledger({"step_us": [1.0] * 9, "saves": saves})
        assert ledger is not None
        assert not ledger.save_ns.any()


def evaluated(every: int, eval_us: float, steps: int = 40, step_us: float = 10_000.0) -> dict[str, Any]:
    """A run that evaluates every so many steps; `step_us` is without the evaluation."""
    times = [eval_us if step and step % every == 0 else 0.0 for step in range(steps)]
    place = {"file": "train.py", "line": 7, "function": "validate", "count": (steps - 1) // every, "us": sum(times)}
    return {
        "ledger.step_us": [step_us + us for us in times],
        "ledger.eval_us": times,
        "ledger.fetch_us": None,
        "ledger.windows": [],
        "ledger.evaluations": [place],
    }


class TestEvaluation:
    """EF005, and what the verdict says first."""

    def test_its_share_of_the_run_and_its_line(self) -> None:
        found = finding(generated("healthy", change=evaluated(every=5, eval_us=90_000.0)), "EF005")
        assert "Evaluation takes 62% of the run after its first step." in found.why
        assert "once every 5 steps, for 90.0 ms each time" in found.why
        assert (found.saving, found.impact) == (None, "info")
        assert [str(location) for location in found.locations] == ["train.py:7"]

    def test_little_of_it_or_a_single_one_is_fine(self) -> None:
        facts = generated("healthy", change=evaluated(every=10, eval_us=5_000.0))
        assert reason(facts, "EF005", "passed") == "Evaluation takes 3.7% of the run after its first step."
        facts = generated("healthy", change=evaluated(every=39, eval_us=9e6))
        assert reason(facts, "EF005", "passed").startswith("Evaluation takes ")
        assert reason(generated("healthy"), "EF005", "passed") == "No evaluation was seen in the run."
        assert NOT_RECORDED.partition("; ")[2] in reason(generated("healthy", metadata=False), "EF005", "not_checked")

    def test_an_evaluation_is_no_part_of_the_step(self) -> None:
        facts = generated("healthy", change=evaluated(every=5, eval_us=90_000.0))
        assert facts.captured.ledger is not None
        assert facts.captured.ledger.usual_ns == 10e6
        assert answer(facts, "EF002")[1] == [], "no slow steps"

    @pytest.mark.parametrize("odd", ["eval", [1.0], [1e9] * 40, [-1.0] * 40, None, [math.nan] * 40])
    def test_odd_times_are_none(self, odd: Any) -> None:
        change = evaluated(every=5, eval_us=90_000.0) | {"ledger.eval_us": odd, "ledger.evaluations": [odd, {}]}
        assert reason(generated("healthy", change=change), "EF005", "passed") == "No evaluation was seen in the run."

    def test_it_is_said_first_if_it_takes_more_than_the_steps(self) -> None:
        document = document_of(generated("healthy", change=evaluated(every=5, eval_us=90_000.0)))
        said, rest = document.verdict.split(". ", 1)
        assert said == "Evaluation takes 62% of the run after its first step (train.py:7), the steps 38%"
        assert rest == document_of(generated("healthy", change=evaluated(every=5, eval_us=0.0))).verdict
        assert document.whole_run is not None
        assert document.whole_run.steps == 40
        assert [(part.name, part.us) for part in document.whole_run.parts] == [
            ("evaluation", 630_000.0),
            ("steps", 390_000.0),
            ("startup", 10_000.0),
        ]
        assert sum(part.share for part in document.whole_run.parts) == pytest.approx(1, abs=1e-5)

    @pytest.mark.parametrize(("eval_us", "said"), [(40_000.0, True), (10_000.0, False)])
    def test_a_large_part_is_said_first_if_fixes_save_less(self, eval_us: float, said: bool) -> None:
        verdict = document_of(generated("healthy", change=evaluated(every=5, eval_us=eval_us))).verdict
        sentence = "Evaluation takes 42% of the run after its first step (train.py:7), the steps 58%. GPU-bound: "
        assert verdict.startswith(sentence) is said
        assert ("the run" in verdict) is said

    def test_a_large_part_is_said_last_if_fixes_save_more(self) -> None:
        document = document_of(generated("launch_bound", change=evaluated(every=5, eval_us=20_000.0)))
        assert document.combined is not None
        assert document.combined.share > 0.5
        assert document.verdict.startswith("The GPU is idle")
        assert document.verdict.endswith(
            " Evaluation takes 26% of the run after its first step (train.py:7), the steps 74%."
        )

    def test_a_single_evaluation_says_nothing(self) -> None:
        verdict = document_of(generated("healthy", change=evaluated(every=39, eval_us=9e6))).verdict
        assert verdict.startswith("GPU-bound: ")
        assert "the run" not in verdict
        assert document_of(generated("healthy", metadata=False)).whole_run is None

    def test_a_script_without_loaders_may_collect_data_in_evaluation_mode(self) -> None:
        change = evaluated(every=5, eval_us=90_000.0) | {"loaders": []}
        facts = generated("healthy", change=change)
        name = "Evaluation mode (evaluation, rollouts or self-play) takes 62% of the run after its first step"
        assert finding(facts, "EF005").why.startswith(f"{name}. It happens about once every 5 steps")
        assert document_of(facts).verdict.startswith(f"{name} (train.py:7), the steps 38%.")

    def test_start_up_counts_in_a_long_run_only(self) -> None:
        step_us = [10_000.0] * 40
        for start_us, said in ((70e6, True), (50e6, False)):
            change = {"ledger.step_us": [start_us, *step_us[1:]], "ledger.fetch_us": None}
            verdict = document_of(generated("healthy", change=change)).verdict
            assert (
                verdict.startswith("Start-up with the first step takes 99% of the run, the other steps 0.6%.") is said
            )

    def test_saves_may_take_more_than_the_steps(self) -> None:
        place = {"file": "train.py", "line": 9, "function": "main", "count": 4, "us": 320_000.0}
        change = {
            "ledger.step_us": [90_000.0 if step in (4, 9, 14, 19) else 10_000.0 for step in range(26)],
            "ledger.saves": [[step, 80_000.0] for step in (4, 9, 14, 19)],
            "ledger.saved_at": [place],
            "ledger.fetch_us": None,
        }
        verdict = document_of(generated("healthy", warmup=20, change=change)).verdict
        assert verdict.startswith("Saving checkpoints takes 56% of the run after its first step (train.py:9), ")


class TestSlowerSteps:
    """A trace shows a few steps. If later ones are much slower, the verdict says so first."""

    def verdict(self, scenario: str, step_us: Sequence[float], **ledger: Any) -> str:
        change = {"ledger.step_us": list(step_us), "ledger.windows": [], "ledger.fetch_us": None}
        return document_of(generated(scenario, change=change | ledger)).verdict

    def test_growth_and_a_change_are_said_first(self) -> None:
        growth = self.verdict("healthy", [10_000.0 + 100 * step for step in range(400)])
        assert growth.startswith("Steps become slower during the run, from 15.2 ms to 45.0 ms. GPU-bound: ")
        change = self.verdict("healthy", [10_000.0] * 200 + [30_000.0] * 200)
        assert change.startswith("Steps become slower at about step 200, from 10.0 ms to 30.0 ms. GPU-bound: ")

    def test_long_steps_at_a_regular_interval_are_said_first(self) -> None:
        steps = [34_000.0 if step % 4 == 3 else 10_000.0 for step in range(80)]
        said = "Every 4 steps, one takes 34.0 ms instead of 10.0 ms: 38% of the time of all steps. GPU-bound: "
        assert self.verdict("healthy", steps).startswith(said)
        assert self.verdict("launch_bound", steps).startswith("The GPU is idle")
        rare = [34_000.0 if step % 12 == 11 else 10_000.0 for step in range(96)]
        assert self.verdict("healthy", rare).startswith("GPU-bound: ")

    def test_less_than_what_fixes_save_is_not(self) -> None:
        assert self.verdict("slow_loader", [10_000.0] * 200 + [20_000.0] * 200).startswith("The GPU is idle")

    def test_a_slow_end_of_the_run_is_not(self) -> None:
        assert self.verdict("healthy", [10_000.0] * 380 + [20_000.0] * 20).startswith("GPU-bound: ")

    def test_what_other_programs_may_explain_is_not(self) -> None:
        steps, run_us = [10_000.0] * 200 + [30_000.0] * 200, 8e6
        crowded = {"ledger.core_wait": {"us": 0.2 * run_us, "cpu_us": 0.8 * run_us, "wall_us": run_us}}
        assert self.verdict("healthy", steps, **crowded).startswith("GPU-bound: ")
        change = {"ledger.step_us": steps, "ledger.windows": [], "ledger.fetch_us": None} | crowded
        assert "Other programs used the cores" in finding(generated("healthy", change=change), "RH003").why

    def test_faster_steps_and_larger_batches_are_not(self) -> None:
        assert self.verdict("healthy", [30_000.0] * 200 + [10_000.0] * 200).startswith("GPU-bound: ")
        larger = {"ledger.samples": [16] * 200 + [48] * 200}
        assert self.verdict("healthy", [10_000.0] * 200 + [30_000.0] * 200, **larger).startswith("GPU-bound: ")


class TestTooFewCores:
    """Threads of the job that wait for each other make all steps longer, so no step shows it."""

    def verdict(self, scenario: str, waited_us: float, cores: int = 2) -> str:
        """Of a job with two threads for operators and four workers."""
        wait = {"ledger.core_wait": {"us": waited_us, "cpu_us": 8e5, "wall_us": 1e6}}
        machine = {"environment.threads": 2, "environment.cpu_affinity": cores, "environment.cpu_count": cores}
        return document_of(generated(scenario, fixed=True, change=wait | machine)).verdict

    def test_it_is_said_first(self) -> None:
        said = (
            "The main thread waits for a free core for 30% of the run: the job has 6 threads on 2 cores. CPU-only run: "
        )
        assert self.verdict("cpu_only", 3e5).startswith(said)

    def test_short_waits_those_for_other_programs_and_those_that_a_gpu_hides_are_not_said(self) -> None:
        assert "free core" not in self.verdict("cpu_only", 2e5)
        assert "free core" not in self.verdict("cpu_only", 3e5, cores=8)
        assert "free core" not in self.verdict("healthy", 3e5)


class TestOccasionalCosts:
    """What happens in some steps of the run: compared with the run's mean step, and last in the plan."""

    def facts(self, scenario: str, pause_us: float) -> Facts:
        """Every third step of the run has a collection."""
        collected = [pause_us if step % 3 == 0 else 0.0 for step in range(60)]
        change = {
            "ledger.step_us": [10_000.0 + us for us in collected],
            "ledger.gc_us": collected,
            "gc": {"collections": 20, "us": sum(collected)},
            "ledger.windows": [],
            "ledger.fetch_us": None,
        }
        return generated(scenario, change=change)

    def test_a_saving_is_the_same_part_of_the_recorded_step(self) -> None:
        """The run's mean step is far longer than a recorded one."""
        facts = self.facts("cpu_only", pause_us=3e6)
        found = finding(facts, "PY001")
        assert found.saving is not None
        assert found.saving.share == pytest.approx(1_000_000 / 1_010_000, abs=0.01)
        assert found.saving.high_us < facts.step_ns / 1e3

    def test_a_fix_for_every_step_goes_first(self) -> None:
        facts = self.facts("slow_loader", pause_us=300_000.0)
        loader, collector = finding(facts, "DL001"), finding(facts, "PY001")
        assert loader.saving is not None
        assert collector.saving is not None
        assert collector.saving.est_us > loader.saving.est_us
        assert [row.code for row in document_of(facts).plan][:2] == ["DL001", "PY001"]

    def test_slow_steps_of_unknown_cause_have_no_saving(self) -> None:
        """They may be needed: the rollouts of reinforcement learning, for example."""
        step_us = [1_000_000.0 if step % 5 == 0 else 10_000.0 for step in range(60)]
        change = {"ledger.step_us": step_us, "ledger.windows": [], "ledger.fetch_us": None}
        assert finding(generated("healthy", change=change), "EF002").saving is None

    def test_recorded_steps_without_the_long_collections_are_no_measure(self) -> None:
        """Short collections in every step, and a full one in every tenth step, none of which was recorded."""
        collected = [200_000.0 if step % 10 == 0 else 1_000.0 for step in range(60)]
        change = {
            "ledger.step_us": [100_000.0 + us for us in collected],
            "ledger.gc_us": collected,
            "gc": {"collections": 60, "us": sum(collected)},
            "ledger.windows": [],
            "ledger.fetch_us": None,
        }
        facts = generated("cpu_only", gc_us=1_000, gc_recorded=True, change=change)
        found = finding(facts, "PY001")
        assert found.saving is not None
        assert found.saving.share == pytest.approx(20_900 / 120_900, abs=0.03)
        assert [row.code for row in document_of(facts).plan][-1] == "PY001", "most steps have short ones only"

    def test_one_collection_is_no_habit(self) -> None:
        """Such as one that the profiler's start causes."""
        gc = {"collections": 2, "us": 60_500.0}
        for steps, status in (([12, 13], "passed"), ([6, 7, 9, 11, 12, 13], "found")):
            collected = [30_000.0 if step in steps else 0.0 for step in range(22)]
            facts = generated("healthy", warmup=16, change={"ledger.gc_us": collected, "gc": gc})
            assert answer(facts, "PY001")[0].status == status


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
