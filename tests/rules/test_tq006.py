"""TQ006 profiler-overhead: measure host-bound time without stacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.findings import RULES, document_of
from support.quality import notes, on_a_gpu, steps, why_silent
from support.recorded_facts import generated, reason
from support.traces import GetExample

from benchmarks.savings.captures import CAPTURES
from traceopt.api import analyze
from traceopt.result.document import Result
from traceopt.result.sections.work_rows import BreakdownPart
from traceopt.result.words.quantities import NO_BREAK_SPACE, ms, ms_of_us
from traceopt.rules.engine import run_rules

RECORDINGS = sorted(path for device in ("h100", "cpu") for path in CAPTURES.parent.glob(f"{device}/*/plain"))


def busy_us(breakdown: list[BreakdownPart]) -> float:
    return sum(part.us_per_step for part in breakdown if part.busy)


class TestStretch:
    """TQ006."""

    def window(self, stretch: float) -> dict[str, Any]:
        step_us = [10_000.0] * 16 + [stretch * 10_000.0] * 6
        return {"ledger.step_us": step_us, "ledger.fetch_us": None}

    @pytest.mark.parametrize("scenario", ["launch_bound", "cpu_only"])
    def test_both_steps_are_reported(self, scenario: str) -> None:
        unrecorded_us = [generated(scenario).step_ns / 1.34 / 1e3] * 16
        ledger = {"ledger.step_us": unrecorded_us + [1.34 * us for us in unrecorded_us[:6]], "ledger.fetch_us": None}
        facts = generated(scenario, warmup=16, change=ledger)
        [note] = run_rules([RULES["TQ006"]], facts, debug=True).notes
        both = f"Recorded steps took {ms(facts.step_ns)}, and unrecorded ones {ms(facts.step_ns / 1.34)}. "
        assert note.text.startswith(both)
        assert ("the GPU's wait for the host" in note.text) == (scenario == "launch_bound")

    @pytest.mark.parametrize(("stretch", "known"), [(1.02, False), (1.34, True), (2.5, False)])
    def test_the_plan_says_what_to_expect_of_unrecorded_steps(self, stretch: float, known: bool) -> None:
        """The profiler slows the host only: the GPU is as busy in them, and idle for a shorter time. If the recorded
        steps are far longer, they are not like the others.
        """
        recorded = {"ledger.step_us": [26_300 / stretch] * 16 + [26_300.0] * 6, "ledger.fetch_us": None}
        result = document_of(generated("slow_loader", warmup=16, change=recorded))
        combined, step_us = result.combined, sum(part.us_per_step for part in result.breakdown)
        assert combined is not None
        assert (combined.unrecorded is not None) == known
        if combined.unrecorded is not None:
            bare_us = 26_300 / stretch
            idle_left = (bare_us - busy_us(result.breakdown)) / (step_us - busy_us(result.breakdown))
            idle_after_us = idle_left * (combined.step_us_after - busy_us(combined.breakdown_after))
            assert combined.unrecorded.step_us == pytest.approx(bare_us, abs=0.1)
            assert combined.unrecorded.step_us_after == pytest.approx(
                busy_us(combined.breakdown_after) + idle_after_us, rel=0.01
            )

    def test_where_only_the_wait_for_data_is_shorter_the_ratio_is_of_the_rest(self) -> None:
        step_us = generated("cpu_only").step_ns / 1e3
        waits_us = [step_us - 1_000.0] * 16 + [step_us - 1_340.0] * 6
        ledger = {"ledger.step_us": [step_us] * 22, "ledger.fetch_us": waits_us}
        [note] = run_rules([RULES["TQ006"]], generated("cpu_only", warmup=16, change=ledger), debug=True).notes
        assert note.text.startswith("Recorded steps took 1.34 times as long as unrecorded ones, excluding waits")

    def test_a_stack_that_cost_nothing_is_no_note(self) -> None:
        facts = generated("launch_bound", warmup=16, change=self.window(1.02))
        assert "unrecorded ones" in reason(facts, "TQ006", "passed")

    def test_recorded_steps_that_are_far_shorter_are_not_those_of_the_run(self) -> None:
        facts = generated("healthy", warmup=16, change=self.window(0.24))
        [note] = run_rules([RULES["TQ006"]], facts, debug=True).notes
        assert "only 0.24 times as long" in note.text


@pytest.mark.parametrize("folder", RECORDINGS, ids=lambda folder: f"{folder.parts[-3]}/{folder.parts[-2]}")
def test_its_times_are_those_of_the_page(folder: Path) -> None:
    """No factor beside times that make another one."""
    result: Result = analyze(str(folder))
    [text] = [check.reason for check in result.checks if check.code == "TQ006"]
    assert result.step.typical_us is not None
    unrecorded = None if result.combined is None else result.combined.unrecorded
    other_us = unrecorded.step_us if unrecorded is not None else result.step.recorded_us
    times = [ms_of_us(us).replace(NO_BREAK_SPACE, " ") for us in (other_us, result.step.typical_us) if us is not None]
    assert "times as long" not in text
    assert result.step.stretch is None or [time for time in times if time not in text] == []


class TestProfilerOverhead:
    def test_fires_on_stacks_and_a_slow_host(self, example: GetExample) -> None:
        assert "with_stack=False" in notes(example("launch_bound").facts)["TQ006"]
        assert "TQ006" not in notes(example("healthy").facts)

    def test_silent_without_stacks(self) -> None:
        assert why_silent(on_a_gpu([*steps(busy_us=1_000)]), "TQ006") == "No Python stacks were recorded."


def test_sampled_hardware_counters_lock_the_clocks() -> None:
    reading = {"ph": "C", "cat": "hardware_counters", "name": "sm__cycles", "pid": "GPU 0 Counters", "ts": 1}
    sampled = on_a_gpu([*steps(), *({**reading, "args": {"": value}} for value in range(3))])
    assert "(3 readings), which locks the GPU's clocks" in notes(sampled)["TQ006"]
    other = {**reading, "cat": "gpu_memory"}
    assert "TQ006" not in notes(on_a_gpu([*steps(), other]))
