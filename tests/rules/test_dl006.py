"""DL006 worker-restart: keep data loader workers alive between epochs."""

from __future__ import annotations

import pytest
from support.planted import PlantedFault
from support.recorded_facts import finding, generated, reason

from traceopt.analyzer.facts import Facts


class TestPlanted(PlantedFault):
    code = "DL006"


class TestRestarts:
    """DL006."""

    def test_the_cost_is_spread_over_the_run(self) -> None:
        def est_us(epoch_steps: int) -> float:
            saving = finding(generated("worker_restart", epoch_steps=epoch_steps, start_us=200_000.0), "DL006").saving
            assert saving is not None
            return saving.high_us

        assert est_us(8) == pytest.approx(2 * est_us(16), rel=0.6)

    def test_the_place_is_the_line_that_constructs_the_loader(self) -> None:
        facts = generated("worker_restart", epoch_steps=6, start_us=200_000.0)
        [loader] = facts.trace.meta.header["traceopt"]["loaders"]
        built = [["torch/utils/data/dataloader.py(3): x", "data.py(7): loaders", "train.py(30): main"]]
        facts = generated(
            "worker_restart", epoch_steps=6, start_us=200_000.0, change={"loaders": [loader | {"built": built}]}
        )
        assert [str(place) for place in finding(facts, "DL006").locations] == ["data.py:7"]

    def new_loaders(self, build_us: float) -> Facts:
        """Each epoch of six steps constructs its own loader."""
        facts = generated("worker_restart", epoch_steps=6, start_us=200_000.0, build_us=build_us)
        [loader] = facts.trace.meta.header["traceopt"]["loaders"]
        fields = {"epoch_steps": 6, "start_us": 200_000.0, "build_us": build_us}
        return generated("worker_restart", change={"loaders": [loader | {"objects": len(loader["starts"])}]}, **fields)

    def test_workers_of_new_loaders_cannot_persist(self) -> None:
        found = finding(self.new_loaders(build_us=90_000.0), "DL006")
        assert found.title == "Build the data loader once, with persistent workers"
        assert found.why.endswith(" Each start is for a new DataLoader.")
        assert found.fix.code is None

    def test_short_epochs_do_not_pay_for_workers(self) -> None:
        kept, inline = (finding(self.new_loaders(build_us), "DL006") for build_us in (90_000.0, 2_000.0))
        assert inline.title == "Load short epochs without worker processes"
        assert inline.fix.code == "DataLoader(..., num_workers=0)"
        assert inline.saving is not None
        assert kept.saving is not None
        assert inline.saving.est_us <= kept.saving.high_us
        assert inline.why.endswith(" It takes 10.7 ms to build all batches of one.")

    def test_rare_restarts_are_no_finding(self) -> None:
        facts = generated("worker_restart", epoch_steps=24, start_us=4_000.0)
        assert reason(facts, "DL006", "passed").startswith("Restarting workers takes ")

    def test_without_workers_nothing_restarts(self) -> None:
        assert "worker processes" in reason(generated("slow_loader"), "DL006", "not_applicable")

    def test_two_loaders_in_turn_restart_nothing(self) -> None:
        facts = generated("worker_restart", epoch_steps=12, start_us=200_000.0)
        [loader] = facts.trace.meta.header["traceopt"]["loaders"]
        facts = generated(
            "worker_restart",
            epoch_steps=12,
            start_us=200_000.0,
            change={
                "loaders": [loader | {"starts": loader["starts"][:2], "iterators": 2, "objects": 2, "together": 2}]
            },
        )
        assert reason(facts, "DL006", "passed") == "The workers were started only once."

    def test_a_longer_run_has_the_same_cost_per_step(self) -> None:
        """Whether the last epoch is complete does not matter."""

        def est_us(steps: int) -> float:
            facts = generated("worker_restart", epoch_steps=6, start_us=20_000.0, steps=steps)
            saving = finding(facts, "DL006").saving
            assert saving is not None
            return saving.est_us

        assert est_us(20) == pytest.approx(est_us(24), rel=0.05)
