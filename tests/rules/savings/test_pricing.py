"""Savings come from the replay, stay inside what was measured, and have a potential where another limit hides them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from traceopt.analyzer.arrays.intervals import union
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import RemoveHost, ScaleWork
from traceopt.api import analyze
from traceopt.result.finding import Confidence, Finding, Fix, Saving
from traceopt.rules.rule import Rule
from traceopt.rules.savings.known_error import ERROR_ON_GPU, saving_of_step
from traceopt.rules.savings.potential import potentials_ns
from traceopt.rules.savings.price import Price, Priced
from traceopt.rules.savings.pricing import gain_ns, hide, priced, scaled, shorter
from traceopt.testing.events import annotation, document
from traceopt.testing.machine import Machine

US = 1_000


def loading(machine: Machine, us: float) -> None:
    machine.events.append(annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", machine.now, us))
    machine.work(us, "load")


def facts_with(load_us: float, kernel_us: float, *, wait: bool, late_us: float = 0.0) -> Facts:
    return machine_of(load_us, kernel_us, wait=wait, late_us=late_us).facts()


def machine_of(load_us: float, kernel_us: float, *, wait: bool, late_us: float = 0.0) -> Machine:
    """Five steps of loading and one kernel, for which the host waits or does not."""
    machine = Machine()
    for _ in range(5):
        with machine.step():
            loading(machine, load_us)
            machine.launch(kernel_us, after=machine.now + late_us)
            if wait:
                machine.synchronize()
    return machine


def load_area(facts: Facts) -> RemoveHost:
    rows = np.array([facts.trace.names[code] == "load" for code in facts.slices.name])
    return RemoveHost(union(facts.slices.start[rows], facts.slices.end[rows]))


def halved(facts: Facts) -> ScaleWork:
    return ScaleWork(np.ones(len(facts.gpu.work), bool), 0.5)


def finding(price: Price, code: str) -> Priced:
    return Priced(Finding(code, code, "", "low", "high", "", "", price.saving, "", [], [], Fix("")), price)


def test_the_replay_says_how_much_a_fix_saves() -> None:
    facts = facts_with(600, 400, wait=True)
    price = priced(
        facts, (0, 1_000 * US, 1_000 * US), [load_area(facts)], "", low=[RemoveHost(load_area(facts).area, 0.5)]
    )
    assert price.saving.est_us == pytest.approx(600, rel=0.01)
    assert price.saving.low_us == 0  # only what is certain
    assert price.changes[0].area.total == 5 * 600 * US  # type: ignore[attr-defined]


def test_a_price_is_in_whole_ns_and_its_saving_in_us() -> None:
    price = saving_of_step(1_000_000, 1_000.4, 2_000.6, 3_000.2, "Measured.", 0.1)
    assert (price.low_ns, price.est_ns, price.high_ns, price.share) == (1_000, 2_001, 3_000, 0.002001)
    assert price.saving == Saving(1.0, 2.001, 3.0, 0.002001, "Measured.")


def test_a_saving_says_what_takes_its_range_beyond_the_measured_cost() -> None:
    def error_share(est_ns: float, high_ns: float) -> float | None:
        return saving_of_step(1_000_000, est_ns, est_ns, high_ns, "Measured.", 0.2).saving.error_share

    assert error_share(100_000, 110_000) == 0.2
    assert error_share(100_000, 130_000) is None, "what was measured is wider"
    assert error_share(950_000, 950_000) is None, "something of the step remains"


def test_a_fix_that_may_save_nothing_is_not_sure() -> None:
    class Sure(Rule):
        code, name, title, family = "ACME1", "acme", "Change it", "acme"

    def confidence(low_ns: float, given: Confidence | None = None) -> str:
        saving = saving_of_step(1_000_000, low_ns, 100_000, 110_000, "Measured.", 0.2)
        return Sure().finding(why="", fix=Fix(""), saving=saving, evidence=[], confidence=given).finding.confidence

    assert (confidence(1_000), confidence(0)) == ("high", "medium")
    assert confidence(0, "low") == "low"


def test_something_of_the_step_always_remains() -> None:
    price = saving_of_step(1_000_000, 970_000, 980_000, 1_000_000, "Measured.", 0.17)
    assert (price.low_ns, price.est_ns, price.high_ns, price.share) == (788_500, 950_000, 950_000, 0.95)


def test_never_more_than_was_measured() -> None:
    facts = facts_with(600, 400, wait=True)
    saving = priced(facts, (100 * US, 200 * US, 300 * US), [load_area(facts)], "").saving
    assert (saving.low_us, saving.est_us, saving.high_us) == (100, 200, 300)


def test_a_range_is_never_narrower_than_predictions_are_known_to_be_exact() -> None:
    facts = facts_with(600, 400, wait=True)
    exact = priced(facts, (200 * US, 200 * US, 200 * US), [load_area(facts)], "").saving
    assert (exact.low_us, exact.est_us, exact.high_us) == pytest.approx((152, 200, 248))
    wide = priced(facts, (100 * US, 200 * US, 210 * US), [load_area(facts)], "").saving
    assert (wide.low_us, wide.est_us, wide.high_us) == pytest.approx((100, 200, 248))


def test_fixing_hidden_work_saves_nothing() -> None:
    facts = facts_with(300, 400, wait=False)
    assert priced(facts, (0, 300 * US, 300 * US), [load_area(facts)], "").saving.est_us == 0


def test_without_a_replay_to_trust_the_bounds_are_the_saving() -> None:
    facts = facts_with(300, 100, wait=True, late_us=500)
    assert not facts.replay_trusted
    saving = priced(facts, (100 * US, 200 * US, 300 * US), [load_area(facts)], "").saving
    assert (saving.low_us, saving.est_us, saving.high_us) == (100, 200, 300)


def test_then_the_confidence_falls_too(tmp_path: Path) -> None:
    def confidence(late_us: float) -> str:
        path = tmp_path / f"{late_us}.json"
        path.write_bytes(document(machine_of(3_000, 1_000, wait=True, late_us=late_us).events))
        (found,) = analyze(str(path), select=["DL001"]).findings
        return found.confidence

    assert (confidence(0), confidence(2_000)) == ("high", "medium")


def test_the_range_is_of_the_typical_step(tmp_path: Path) -> None:
    """One of twelve steps waits far longer for its batch, and is no typical step."""
    machine = Machine()
    for step in range(12):
        with machine.step():
            loading(machine, 30_000 if step == 5 else 6_000)
            machine.launch(6_000)
            machine.synchronize()
    facts = machine.facts()
    assert facts.steps.count == 11
    path = tmp_path / "trace.json"
    path.write_bytes(document(machine.events))
    (found,) = analyze(str(path), select=["DL001"]).findings
    assert found.saving is not None
    assert found.saving.high_us <= (1 + ERROR_ON_GPU) * found.saving.est_us + 1
    assert "In all 12 steps, unusual ones included, it is 8.0 ms on average." in found.saving.basis


class TestEachOthersLimit:
    """The host needs 405 us a step and the GPU 401, overlapping: a fix of only one side is hidden."""

    @pytest.fixture
    def facts(self) -> Facts:
        return facts_with(400, 400, wait=False)

    @pytest.fixture
    def alone(self, facts: Facts) -> list[Priced]:
        bounds = (0.0, 200.0 * US, 400.0 * US)
        host = priced(facts, bounds, [replace(load_area(facts), share=0.5)], "Loading.")
        device = priced(facts, bounds, [halved(facts)], "Kernels.")
        return [finding(host, "DL001"), finding(device, "TC001")]

    def test_alone_they_give_back_little(self, alone: list[Priced]) -> None:
        assert all(one.finding.saving is not None and one.finding.saving.est_us < 10 for one in alone)

    def test_with_the_other_one_they_give_back_what_was_measured(self, facts: Facts, alone: list[Priced]) -> None:
        assert potentials_ns(alone, facts) == pytest.approx([200 * US, 200 * US], rel=0.03)

    def test_without_a_finding_about_the_other_side_it_stays(self, facts: Facts, alone: list[Priced]) -> None:
        (host, _) = alone
        assert host.finding.saving is not None
        assert potentials_ns([host], facts) == [host.finding.saving.est_us * US]

    def test_one_of_the_same_side_does_not_help(self, facts: Facts, alone: list[Priced]) -> None:
        (host, _) = alone
        assert host.finding.saving is not None
        both = [host, replace(host, finding=replace(host.finding, code="LG001"))]
        assert potentials_ns(both, facts) == [host.finding.saving.est_us * US] * 2


def test_gains_are_shares_of_the_measured_step() -> None:
    facts = facts_with(600, 400, wait=True)
    assert gain_ns(facts, [load_area(facts)]) == pytest.approx(600 * US, rel=0.01)
    assert gain_ns(facts, [load_area(facts), halved(facts)]) == pytest.approx(800 * US, rel=0.01)


def test_work_gets_shorter_by_so_much_a_step() -> None:
    facts = facts_with(100, 400, wait=True)
    everything = np.ones(len(facts.gpu.work), bool)
    for changes in (shorter(facts, everything, 100 * US), hide(facts, np.arange(5), np.full(5, 100.0 * US))):
        assert gain_ns(facts, changes) == pytest.approx(100 * US, rel=0.01)
    assert shorter(facts, ~everything, 100 * US) == []


def test_work_outside_the_typical_steps_changes_as_that_of_its_name_in_them() -> None:
    """The third step is slow once; the work of the next steps waits behind it."""
    machine = Machine()
    for step in range(6):
        with machine.step():
            machine.launch(900 if step == 2 else 300, name="gemm")
            machine.launch(100, name="fill")
    facts = machine.facts()
    inside = facts.gpu.in_window > 0
    assert 0 < inside.sum() < len(inside)
    gemm = np.array([facts.trace.names[code] == "gemm" for code in facts.gpu.work.name])
    (change,) = scaled(facts, gemm & inside, 0.5)
    assert isinstance(change, ScaleWork)
    assert change.factor[change.work].tolist() == np.where(gemm, 0.5, 1)[change.work].tolist()
    assert change.work[gemm].all()
    assert gain_ns(facts, [change]) == pytest.approx(150 * US, rel=0.01)


@pytest.mark.parametrize(("kernel_us", "same"), [(590, True), (100, False)])
def test_one_saving_of_several_assumptions_says_why(kernel_us: float, same: bool) -> None:
    """The kernel of the step before takes as long as loading but for 10 us: to load faster than that saves no more."""
    facts = facts_with(600, kernel_us, wait=False)
    low, expected, high = ([replace(load_area(facts), share=share)] for share in (0.2, 0.5, 1.0))
    saving = priced(facts, (600e3, 600e3, 600e3), expected, "Assumes.", low=low, high=high).saving
    assert (saving.high_us == pytest.approx((1 + ERROR_ON_GPU) * saving.est_us, rel=0.02)) == same
    assert ("The low and high estimates are alike" in saving.basis) == same
