"""What does not happen in every step: saves, evaluation, slow steps at intervals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from support.findings import document_of
from support.recorded_facts import answer, finding, generated

from traceopt.analyzer.facts import Facts


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

    def test_rollouts_before_every_fourth_step_are_said_first_also_where_chance_makes_more_of_them(self) -> None:
        steps = [200_000.0 if step % 4 == 3 or step in (50, 60) else 5_000.0 for step in range(80)]
        verdict = self.verdict("healthy", steps)
        assert verdict.startswith("Other work in 22 long steps takes 92% of the run after its first step")

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


class TestStepsUnlikeTheOthers:
    """As while a queue lasts that was filled before the first step: the others wait, and the trace does not show it."""

    @pytest.mark.parametrize(("stretch", "waited_us", "says"), [(0.3, 0, True), (0.3, 3e5, False), (0.7, 0, False)])
    def test_recorded_steps_that_are_far_shorter(self, stretch: float, waited_us: float, says: bool) -> None:
        change = {
            "ledger.step_us": [10_000 / stretch] * 16 + [10_000.0] * 6,
            "ledger.fetch_us": None,
            "ledger.core_wait": {"us": waited_us, "cpu_us": 8e5, "wall_us": 1e6},
        }
        said = document_of(generated("healthy", warmup=16, change=change)).verdict
        assert said.startswith("The recorded steps took 30% of the time of other steps") is says


class TestTooFewCores:
    """Threads of the job that wait for each other make all steps longer, so no step shows it."""

    def verdict(self, scenario: str, waited_us: float, cores: int = 2, threads: int = 2) -> str:
        """Of a job with some threads for operators and four workers."""
        wait = {"ledger.core_wait": {"us": waited_us, "cpu_us": 8e5, "wall_us": 1e6}}
        machine = {"environment.threads": threads, "environment.cpu_affinity": cores, "environment.cpu_count": cores}
        return document_of(generated(scenario, fixed=True, change=wait | machine)).verdict

    def test_it_is_said_first(self) -> None:
        said = (
            "The main thread waits for a free core for 30% of the run: the job has 6 threads on 2 cores. CPU-only run: "
        )
        assert self.verdict("cpu_only", 3e5).startswith(said)

    def test_other_programs_are_no_reason_to_change_the_code(self) -> None:
        said = self.verdict("cpu_only", 3e5, cores=8)
        first, second, _ = said.split(". ", 2)
        assert first == "The main thread waits for a free core for 30% of the run, because other programs run"
        assert second == "Try fewer operator threads (OMP_NUM_THREADS=1) or a free machine before other changes"
        assert not re.search("First fix|peak|torch.compile|larger batch|channels_last", said)

    def test_a_single_thread_has_its_own_first_fix(self) -> None:
        assert "because other programs run. CPU-only run: " in self.verdict("cpu_only", 3e5, cores=8, threads=1)

    def test_short_waits_and_those_that_a_gpu_hides_are_not_said(self) -> None:
        assert "free core" not in self.verdict("cpu_only", 2e5)
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
        facts = self.facts("cpu_only", pause_us=3e5)
        found = finding(facts, "PY001")
        assert found.saving is not None
        assert found.saving.share == pytest.approx(100_000 / 110_000, abs=0.01)
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
