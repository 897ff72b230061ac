"""LG003 checkpoint-in-step: write checkpoints in the background."""

from __future__ import annotations

import math
from typing import Any

import pytest
from support.findings import document_of
from support.planted import PlantedFault
from support.recorded_facts import finding, generated, reason

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.run_log.step_ledger import read_ledger
from traceopt.testing import A100, Machine
from traceopt.testing import events as build


class TestPlanted(PlantedFault):
    code = "LG003"


def saving_once(at_step: int) -> Facts:
    """Eight steps of 100 ms on a GPU, and one save of twenty tensors, 40 ms for each copy and write."""
    machine = Machine(A100)
    for step in range(8):
        with machine.step():
            machine.launch(100_000)
            machine.synchronize()
            if step == at_step:
                with machine.python("torch/serialization.py(944): save"):
                    for _ in range(20):
                        machine.copy_to_host(10_000)
                        machine.idle(30_000)
    return machine.facts()


class TestOneSave:
    """One save in a recording that holds few steps."""

    def test_the_copies_are_a_part_of_the_save(self) -> None:
        assert "Saving a checkpoint took 800.2 ms in 1 of 8 measured steps." in finding(saving_once(4), "LG003").why

    def test_they_are_no_finding_of_their_own(self) -> None:
        assert "HS002" not in [found.code for found in document_of(saving_once(4)).findings]

    def test_the_verdict_begins_with_a_step_that_takes_most_of_the_recording(self) -> None:
        said = "1 of 8 steps takes 56% of the recorded time: saving a checkpoint. GPU-bound: "
        assert document_of(saving_once(4)).verdict.startswith(said)

    def test_a_long_first_step_is_no_headline(self) -> None:
        assert document_of(saving_once(0)).verdict.startswith("GPU-bound: ")


class TestSaves:
    """LG003: what torch.save costs the run, wherever the recorded steps lie."""

    def facts(self, saves: list[Any]) -> Facts:
        change = {"ledger.saves": saves, "checkpoint": {"saves": len(saves), "us": 0.0}}
        return generated("healthy", warmup=20, stacks=False, change=change)

    def test_saves_outside_of_the_recorded_steps_are_spread_over_the_run(self) -> None:
        facts = self.facts([[step, 13_000.0] for step in (4, 9, 14, 19)])
        found = finding(facts, "LG003")
        assert (
            "4 of 26 steps, about once every 5 steps, for 13.0 ms each. On average that is 2.3 ms of each" in found.why
        )

    def test_saves_in_recorded_steps_are_no_more_than_the_usual_step(self) -> None:
        change = {
            "ledger.saves": [[step, 90_000.0] for step in (21, 22, 23)],
            "ledger.step_us": [5_000.0] * 20 + [100_000.0] * 6,
            "checkpoint": {"saves": 3, "us": 0.0},
        }
        found = finding(generated("healthy", warmup=20, stacks=False, change=change), "LG003")
        assert "for 90.0 ms each. On average that is 2.0 ms of each 5.0 ms step." in found.why

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
