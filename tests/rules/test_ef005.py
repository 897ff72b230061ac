"""EF005 evaluation-time: evaluate less often or faster."""

from __future__ import annotations

import math
from typing import Any

import pytest
from support.findings import document_of
from support.recorded_facts import NOT_RECORDED, answer, finding, generated, reason

from traceopt.reports.text.terminal import render_terminal
from traceopt.reports.words.fixes.fix_cards import first_card


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

    def test_fires_with_its_share_of_the_run_and_its_line(self) -> None:
        found = finding(generated("healthy", change=evaluated(every=5, eval_us=90_000.0)), "EF005")
        assert "Evaluation takes 62% of the run after its first step." in found.why
        assert "once every 5 steps, for 90.0 ms each time" in found.why
        assert (found.saving, found.impact) == (None, "high"), "it takes more than the steps"
        assert [str(location) for location in found.locations] == ["train.py:7"]

    def test_after_each_step_and_shorter_than_it(self) -> None:
        found = finding(generated("healthy", change=evaluated(every=1, eval_us=5_000.0)), "EF005")
        assert "It happens after each step, for 5.0 ms each time" in found.why
        assert found.impact == "info"

    def test_silent_on_little_of_it_or_a_single_one(self) -> None:
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
        without = document_of(generated("healthy", change=evaluated(every=5, eval_us=0.0))).verdict
        assert rest == f"First fix: evaluate half as often to make the run 31% shorter. {without}"
        assert document.whole_run is not None
        assert document.whole_run.steps == 40
        assert [(part.name, part.us) for part in document.whole_run.parts] == [
            ("evaluation", 630_000.0),
            ("steps", 390_000.0),
            ("startup", 10_000.0),
        ]
        assert sum(part.share for part in document.whole_run.parts) == pytest.approx(1, abs=1e-5)

    def test_it_comes_before_the_fixes_of_the_step(self) -> None:
        document = document_of(generated("launch_bound", change=evaluated(every=1, eval_us=90_000.0)))
        assert document.verdict.count("First fix: ") == 1
        assert "First fix: evaluate half as often" in document.verdict
        first = first_card(document)
        assert document.plan
        assert first is not None
        assert first.finding.code == "EF005"
        text = render_terminal(document, width=100, color=False, unicode=True)
        assert text.index("Before all others:") < text.index("EF005") < text.index(document.plan[0].code)

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
