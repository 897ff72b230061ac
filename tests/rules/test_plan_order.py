"""The plan: each fix saves what is left after those above it; never more than the step, never one cause twice."""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING

import numpy as np
import pytest
from msgspec.structs import replace

from fixtures.scenarios import SCENARIOS
from traceopt.analyzer.arrays.intervals import union
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import Change, RemoveHost, ScaleWork
from traceopt.analyzer.trace_quality import TraceQuality
from traceopt.result.document import Combined
from traceopt.result.finding import Confidence, Finding, Fix, Saving
from traceopt.rules.plan import MAX_ROWS, MAX_SAVED_SHARE, Plan, combine, in_order, make_plan
from traceopt.rules.savings.price import Price, Priced
from traceopt.rules.savings.pricing import area_of, priced
from traceopt.testing.machine import Machine

if TYPE_CHECKING:
    from conftest import GetExample

# One fault each, whose whole cost a single fix saves.
SINGLE = ("slow_loader", "logging_stall", "gc_pause", "item_stall", "misaligned_vocab", "metric_sync", "cpu_only")


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_bounds(example: GetExample, scenario: str, fixed: bool) -> None:
    result = example(scenario, fixed).result
    combined, step = result.combined, result.step.typical_us
    assert step
    if combined is None:
        return
    chosen = [result.findings[row.finding] for row in result.plan]
    assert 0 < len(chosen) <= MAX_ROWS
    assert 0 < combined.saving_us <= min(step, sum(f.saving.high_us for f in result.findings if f.saving)) + 0.01
    assert combined.saving_us >= max(f.saving.low_us for f in chosen if f.saving) - 0.01
    if combined.breakdown_after:
        assert sum(part.us_per_step for part in combined.breakdown_after) == pytest.approx(
            combined.step_us_after, abs=1
        )
    assert combined.share == pytest.approx(combined.saving_us / step, abs=1e-5)


@pytest.mark.parametrize("scenario", ["healthy", "cuda_graph", "loss_item", "hidden_host_work"])
def test_nothing_to_plan(example: GetExample, scenario: str) -> None:
    assert example(scenario).result.plan == []
    assert example(scenario).result.combined is None


@pytest.mark.parametrize("scenario", SINGLE)
def test_the_step_after_is_the_step_of_the_fixed_twin(example: GetExample, scenario: str) -> None:
    subject = example(scenario)
    combined = subject.result.combined
    assert combined is not None
    assert combined.step_us_after == pytest.approx(mean(subject.planted.fixed_step_us), rel=0.10)


def finding(
    code: str,
    est_us: float,
    *changes: Change,
    shares_cause_with: list[str] | None = None,
    confidence: Confidence = "high",
    effort: str = "",
    risk: str = "None known",
) -> Priced:
    saving = Saving(est_us / 2, est_us, est_us, 0.2, "")
    price = Price(saving, changes, changes, (0.0, est_us * 1e3, est_us * 1e3)) if changes else None
    shared = shares_cause_with or []
    parts = Finding(code, code, "", "high", confidence, effort, risk, saving, "", [], [], Fix(""), shared)
    return Priced(parts, price)


def together(found: list[Priced], facts: Facts) -> Combined | None:
    return combine(make_plan(found, facts), facts)


def codes(plan: Plan) -> list[str]:
    return [row.fix.finding.code for row in plan.rows]


def without(facts: Facts, activity: str) -> RemoveHost:
    rows = facts.host.rows_of(activity)
    return RemoveHost(area_of(facts, rows[facts.slices.thread[rows] == facts.steps.thread]))


def test_of_one_cause_the_first_counts(example: GetExample) -> None:
    facts = example("five_faults").facts
    both = together([finding("DL001", 8000), finding("HS001", 5000, shares_cause_with=["DL001"])], facts)
    assert both == together([finding("DL001", 8000)], facts)


def test_independent_fixes_of_the_host_add_up(example: GetExample) -> None:
    """In five_faults the GPU is drained at the end of each step: what the host saves, the step saves."""
    facts = example("five_faults").facts
    loader = finding("DL001", 20_000, without(facts, "data_loading"))
    both = together([loader, finding("LG001", 20_000, without(facts, "logging"))], facts)
    assert both is not None
    assert both.saving_us == pytest.approx(9_000 + 5_000, rel=0.02)
    assert both.replay_error_share == 0


def test_a_fix_without_known_changes_is_added_to_the_replay(example: GetExample) -> None:
    facts = example("five_faults").facts
    loader = finding("DL001", 20_000, without(facts, "data_loading"))
    both = together([loader, finding("ACME001", 3_000)], facts)
    assert both is not None
    assert both.saving_us == pytest.approx(9_000 + 3_000, rel=0.02)


def test_the_parts_that_are_left(example: GetExample) -> None:
    """With the names of the breakdown and without the fixed cause; only if the replay explains the saving."""
    subject = example("slow_loader")
    loader = finding("DL001", 20_000, without(subject.facts, "data_loading"))
    combined = together([loader], subject.facts)
    assert combined is not None
    left = {part.name: part.share for part in combined.breakdown_after}
    assert left["compute"] > 0.95
    assert left.get("data_loading", 0) < 0.02
    labels = {part.name: (part.label, part.busy) for part in subject.result.breakdown}
    assert all(labels.get(p.name, (p.label, p.busy)) == (p.label, p.busy) for p in combined.breakdown_after)
    partly = together([loader, finding("ACME001", 3_000)], subject.facts)
    assert partly is not None
    assert partly.breakdown_after == []


def test_a_faster_host_helps_only_to_the_gpus_own_path(example: GetExample) -> None:
    facts = example("hidden_host_work").facts
    assert together([finding("DL001", 15_000, without(facts, "data_loading"))], facts) is None
    facts = example("slow_loader").facts
    starved = facts.step_ns / 1e3 - facts.gpu.busy.total / facts.steps.count / 1e3
    combined = together([finding("DL001", 15_000, without(facts, "data_loading"))], facts)
    assert combined is not None
    assert combined.saving_us == pytest.approx(starved, rel=0.02)
    assert combined.limit_after == "compute"


def test_cheap_and_unpriced_findings_make_no_plan(example: GetExample) -> None:
    facts = example("slow_loader").facts
    cheap = finding("DL001", 100)
    unpriced = Priced(replace(cheap.finding, impact="info", saving=None))
    assert make_plan([cheap, unpriced], facts).rows == []


def test_no_fix_saves_the_whole_step(example: GetExample) -> None:
    """Not even on a CPU-only run, where one path is the step."""
    facts = example("cpu_only").facts
    step_us = facts.step_ns / 1e3
    combined = together([finding("DL001", step_us), finding("LG001", step_us)], facts)
    assert combined is not None
    assert combined.saving_us == pytest.approx(MAX_SAVED_SHARE * step_us)


def test_a_sampled_file_has_no_plan(example: GetExample, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = example("slow_loader").facts
    found = [finding("DL001", 8_000)]
    assert make_plan(found, facts).rows
    monkeypatch.setattr(TraceQuality, "sampled_share", 0.01)
    assert make_plan(found, facts).rows == []


def test_without_a_replay_to_trust_there_is_one_row(monkeypatch: pytest.MonkeyPatch, example: GetExample) -> None:
    facts = example("five_faults").facts
    found = [finding("DL001", 9_000), finding("LG001", 5_000)]
    assert codes(make_plan(found, facts)) == ["DL001", "LG001"]
    monkeypatch.setattr(Facts, "replay_trusted", False)
    assert codes(make_plan(found, facts)) == ["DL001"]


class TestCloseSavings:
    """Two fixes of about the same saving: what else is better about a fix decides."""

    @pytest.fixture
    def facts(self, example: GetExample) -> Facts:
        return example("five_faults").facts

    @pytest.mark.parametrize(
        "better",
        [
            finding("BB001", 4_500),
            finding("BB001", 4_500, effort="Depends on the cause", risk="Fewer logs"),  # sure, though unclear and risky
        ],
    )
    def test_the_surer_first(self, facts: Facts, better: Priced) -> None:
        assert codes(make_plan([finding("AA001", 5_000, confidence="medium"), better], facts)) == ["BB001", "AA001"]

    def test_the_clearer_first(self, facts: Facts) -> None:
        vague = finding("AA001", 5_000, effort="Depends on the cause")
        clear = finding("BB001", 4_500, effort="Some refactoring", risk="Changes the result")
        assert codes(make_plan([vague, clear], facts)) == ["BB001", "AA001"]

    def test_the_safer_first(self, facts: Facts) -> None:
        risky = finding("AA001", 5_000, effort="One line", risk="Changes the result")
        safe = finding("BB001", 4_500, effort="Some refactoring")
        assert codes(make_plan([risky, safe], facts)) == ["BB001", "AA001"]

    def test_the_simpler_first(self, facts: Facts) -> None:
        long, short = finding("AA001", 5_000, effort="Twenty lines"), finding("BB001", 4_500, effort="One argument")
        assert codes(make_plan([long, short], facts)) == ["BB001", "AA001"]

    def test_a_much_larger_saving_comes_first_all_the_same(self, facts: Facts) -> None:
        long, short = finding("AA001", 5_000, effort="Twenty lines"), finding("BB001", 3_500, effort="One argument")
        assert codes(make_plan([long, short], facts)) == ["AA001", "BB001"]


class TestTwoLimits:
    """The host needs 405 us a step and the GPU 401, overlapping: each fix alone gives little, both give 200 us."""

    @pytest.fixture
    def facts(self) -> Facts:
        machine = Machine()
        for _ in range(6):
            with machine.step():
                machine.work(400, "load")
                machine.launch(400)
        return machine.facts()

    @pytest.fixture
    def fixes(self, facts: Facts) -> list[Priced]:
        rows = np.array([facts.trace.names[code] == "load" for code in facts.slices.name])
        loading = RemoveHost(union(facts.slices.start[rows], facts.slices.end[rows]), 0.5)
        halved = ScaleWork(np.ones(len(facts.gpu.work), bool), 0.5)
        bounds = (0.0, 200e3, 400e3)
        prices = {"DL001": priced(facts, bounds, [loading], "Half."), "TC001": priced(facts, bounds, [halved], "Half.")}
        return [
            replace(finding(code, 1.0), price=price, finding=replace(finding(code, 1.0).finding, saving=price.saving))
            for code, price in prices.items()
        ]

    def test_each_alone_saves_little(self, fixes: list[Priced]) -> None:
        assert all(one.finding.saving is not None and one.finding.saving.est_us < 10 for one in fixes)

    def test_one_alone_is_no_plan(self, facts: Facts, fixes: list[Priced]) -> None:
        for one in fixes:
            assert make_plan([one], facts).rows == []

    def test_the_plan_has_both_and_the_second_needs_the_first(self, facts: Facts, fixes: list[Priced]) -> None:
        first, second = make_plan(fixes, facts).rows
        assert {first.fix.finding.code, second.fix.finding.code} == {"DL001", "TC001"}
        assert (first.needs, second.needs) == ((), (1,))
        assert first.saving_ns == pytest.approx(first.alone_ns)
        assert second.alone_ns < 0.1 * second.saving_ns
        assert first.saving_ns + second.saving_ns == pytest.approx(200e3, rel=0.05)

    def test_their_impact_is_what_they_give_after_each_other(self, facts: Facts, fixes: list[Priced]) -> None:
        for one in in_order(fixes, make_plan(fixes, facts), facts):
            assert one.finding.impact == "high"
            assert one.finding.saving is not None
            assert one.finding.saving.est_us < 10
            assert "once the other limits of the step are gone" in one.finding.saving.basis

    def test_a_second_fix_of_the_same_side_is_not_needed(self, facts: Facts, fixes: list[Priced]) -> None:
        (host, device) = fixes
        again = replace(host, finding=replace(host.finding, code="LG001"))
        assert len(make_plan([host, again, device], facts).rows) == 2


def test_what_cannot_shorten_the_step_is_no_finding(example: GetExample) -> None:
    facts = example("hidden_host_work").facts
    price = priced(facts, (0.0, 0.0, 0.0), [without(facts, "logging")], "Hidden.")
    hidden = replace(finding("LG001", 0.0), price=price)
    hidden = replace(hidden, finding=replace(hidden.finding, saving=price.saving))
    assert in_order([hidden], make_plan([hidden], facts), facts) == []
