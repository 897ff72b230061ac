"""DL005 periodic-loader-stall: help the data loader workers keep up."""

from __future__ import annotations

from support.planted import PlantedFault
from support.recorded_facts import answer, generated, reason


class TestPlanted(PlantedFault):
    code = "DL005"


class TestTurns:
    """DL005."""

    def test_another_period_than_the_number_of_workers_is_no_turn(self) -> None:
        facts = generated("slow_steps", every=3, load_us=40_000)
        assert "no costly periodic waits" in reason(facts, "DL005", "passed")

    def test_one_worker_has_no_turns(self) -> None:
        assert "single worker" in reason(generated("slow_steps", workers=1), "DL005", "not_applicable")

    def test_waits_in_every_step_are_dl001_s(self) -> None:
        facts = generated("slow_steps", every=1)
        assert answer(facts, "DL005")[1] == []

    def test_a_wait_beside_a_busy_gpu_costs_nothing(self) -> None:
        facts = generated("slow_steps", load_us=12_000)
        assert answer(facts, "DL005")[1] == []
