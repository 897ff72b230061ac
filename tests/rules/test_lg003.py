"""LG003 checkpoint-in-step: write checkpoints in the background."""

from __future__ import annotations

import math
from typing import Any

import pytest
from support.planted import PlantedFault
from support.recorded_facts import finding, generated, reason

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.run_log.step_ledger import read_ledger
from traceopt.testing import events as build


class TestPlanted(PlantedFault):
    code = "LG003"


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
