"""PY001 gc-pause: freeze the garbage collector and collect at chosen steps."""

from __future__ import annotations

import re

from support.planted import PlantedFault
from support.recorded_facts import finding, generated, reason

from traceopt.rules.catalogue.py001_gc_pause import GcPause
from traceopt.testing import A100, Machine, answer


class TestPlanted(PlantedFault):
    code = "PY001"
    within = 0.10


class TestCollector:
    """PY001."""

    def test_recorded_totals_are_sure_but_a_gap_without_events_is_a_guess(self) -> None:
        guess = finding(generated("gc_pause", metadata=False), "PY001")
        assert (guess.confidence, guess.saving) == ("low", None)
        assert guess.fix.code == "traceopt run python script.py"
        found = finding(generated("gc_pause", warmup=10), "PY001")
        assert found.confidence == "medium"  # it is recorded, but its range starts at 0
        assert "20.0 ms of each 22.3 ms step" in found.why

    def test_a_gap_without_collections_is_not_the_collector(self) -> None:
        none = {"collections": 0, "us": 0.0}
        facts = generated("gc_pause", change={"gc": none, "ledger.gc_us": None})
        assert reason(facts, "PY001", "passed") == "Garbage collection takes 0% of the run's steps."

    def test_collections_outside_of_the_recorded_steps_count(self) -> None:
        change = {"ledger.gc_us": [0.0] * 10 + [60_000.0] * 6 + [0.0] * 6, "gc": {"collections": 6, "us": 360_000.0}}
        found = finding(generated("healthy", warmup=16, change=change), "PY001")
        assert found.saving is not None
        assert found.saving.low_us == 0

    def test_the_collector_never_takes_more_than_the_step(self) -> None:
        """The profiler makes collections of the recorded steps longer; they are compared with their own steps only."""
        change = {"ledger.gc_us": [0.0] * 6 + [1_000.0] * 10 + [900_000.0] * 6, "gc": {"collections": 16, "us": 5.41e6}}
        why = finding(generated("healthy", warmup=16, change=change), "PY001").why
        taken, step = (
            float(number.replace(",", "")) for number in re.findall(r"([\d.,]+) ms (?:of each|step)", why)[:2]
        )
        assert taken <= step

    def test_a_script_that_collects_itself_is_not_told_to_disable_collection(self) -> None:
        """gc.disable() would not stop it."""
        machine = Machine(A100)
        for _ in range(4):
            with machine.step(), machine.python("finetune.py(61): main"):
                for _ in range(8):
                    machine.launch(500)
                machine.synchronize()
                with machine.python("<built-in function collect>"):
                    machine.idle(40_000)
        _, [found] = answer(GcPause, machine)
        assert found.title == "Call gc.collect() less often, or not at all"
        assert "calls gc.collect() itself" in found.fix.text
        assert "disable" not in found.fix.text

    def test_objects_that_are_already_frozen(self) -> None:
        gc = {"collections": 9, "us": 1e5, "full_collections": 9, "full_us": 1e5, "frozen_objects": 1_000_000}
        assert "already frozen" in finding(generated("gc_churn", change={"gc": gc}), "PY001").fix.text
