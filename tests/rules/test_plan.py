"""Combined fixes: never more than the step, never the sum of overlapping savings, None without a certain saving."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from fixtures.scenarios import SCENARIOS
from traceopt.analyzer.replay.changes import Change, RemoveHost
from traceopt.analyzer.trace_quality import TraceQuality
from traceopt.result.finding import Finding, Fix, Saving
from traceopt.rules.combine import TOP, combine
from traceopt.rules.savings.price import Price, Priced
from traceopt.rules.savings.pricing import area_of

if TYPE_CHECKING:
    from conftest import GetExample

    from traceopt.analyzer.facts import Facts

# One fault each, whose whole cost a single fix saves.
SINGLE = ("slow_loader", "logging_stall", "gc_pause", "item_stall", "misaligned_vocab", "metric_sync", "cpu_only")


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_bounds(example: GetExample, scenario: str, fixed: bool) -> None:
    result = example(scenario, fixed).result
    combined, step = result.combined, result.step.median_us
    assert step
    if combined is None:
        return
    chosen = [next(f for f in result.findings if f.code == code) for code in combined.codes]
    single = [f.saving.est_us for f in chosen if f.saving]
    assert 0 < len(combined.codes) <= TOP
    assert all(f.impact in ("high", "medium") for f in chosen)
    assert 0 < combined.saving_us <= min(step, sum(f.saving.est_us for f in result.findings if f.saving)) + 0.01
    assert combined.saving_us >= max(f.saving.low_us for f in chosen if f.saving) - 0.01
    if combined.breakdown_after:
        assert sum(part.us_per_step for part in combined.breakdown_after) == pytest.approx(
            combined.step_us_after, abs=1
        )
    assert len(single) == len(chosen)
    assert combined.saving_us + combined.step_us_after == pytest.approx(step, abs=0.01)
    assert combined.share == pytest.approx(combined.saving_us / step, abs=1e-5)
    for one in chosen:
        assert not set(one.shares_cause_with) & (set(combined.codes) - {one.code})


@pytest.mark.parametrize("scenario", ["healthy", "cuda_graph", "loss_item", "hidden_host_work"])
def test_nothing_to_combine(example: GetExample, scenario: str) -> None:
    assert example(scenario).result.combined is None


@pytest.mark.parametrize("scenario", SINGLE)
def test_the_step_after_is_the_step_of_the_fixed_twin(example: GetExample, scenario: str) -> None:
    subject = example(scenario)
    combined = subject.result.combined
    assert combined is not None
    assert combined.step_us_after == pytest.approx(median(subject.planted.fixed_step_us), rel=0.10)


def finding(code: str, est_us: float, *changes: Change, shares_cause_with: list[str] | None = None) -> Priced:
    saving = Saving(est_us / 2, est_us, est_us, 0.2, "")
    price = Price(saving, changes, changes, (0.0, est_us * 1e3, est_us * 1e3)) if changes else None
    shared = shares_cause_with or []
    return Priced(Finding(code, code, "", "high", "high", "", "", saving, "", [], [], Fix(""), shared), price)


def without(facts: Facts, activity: str) -> RemoveHost:
    rows = facts.host.rows_of(activity)
    return RemoveHost(area_of(facts, rows[facts.slices.thread[rows] == facts.steps.thread]))


def test_of_one_cause_the_first_counts(example: GetExample) -> None:
    facts = example("five_faults").facts
    both = combine([finding("DL001", 8000), finding("HS001", 5000, shares_cause_with=["DL001"])], facts)
    one = combine([finding("DL001", 8000)], facts)
    assert both == one


def test_independent_fixes_of_the_host_add_up(example: GetExample) -> None:
    """In five_faults the GPU is drained at the end of each step: what the host saves, the step saves."""
    facts = example("five_faults").facts
    loader = finding("DL001", 20_000, without(facts, "data_loading"))
    together = combine([loader, finding("LG001", 20_000, without(facts, "logging"))], facts)
    assert together is not None
    assert together.saving_us == pytest.approx(9_000 + 5_000, rel=0.02)
    assert together.replay_error_share == 0


def test_what_is_not_known_of_a_fix_is_added_to_the_replay(example: GetExample) -> None:
    facts = example("five_faults").facts
    loader = finding("DL001", 20_000, without(facts, "data_loading"))
    together = combine([loader, finding("ACME001", 3_000)], facts)
    assert together is not None
    assert together.saving_us == pytest.approx(9_000 + 3_000, rel=0.02)


def test_the_parts_that_are_left(example: GetExample) -> None:
    """With the names of the breakdown and without the fixed cause; only if the replay explains the saving."""
    subject = example("slow_loader")
    combined = subject.result.combined
    assert combined is not None
    left = {part.name: part.share for part in combined.breakdown_after}
    assert left["compute"] > 0.95
    assert left.get("data_loading", 0) < 0.02
    labels = {part.name: (part.label, part.busy) for part in subject.result.breakdown}
    assert all(labels.get(p.name, (p.label, p.busy)) == (p.label, p.busy) for p in combined.breakdown_after)
    loader = finding("DL001", 20_000, without(subject.facts, "data_loading"))
    partly = combine([loader, finding("ACME001", 3_000)], subject.facts)
    assert partly is not None
    assert partly.breakdown_after == []


def test_a_faster_host_helps_only_to_the_gpus_own_path(example: GetExample) -> None:
    facts = example("hidden_host_work").facts
    assert combine([finding("DL001", 0.0, without(facts, "data_loading"))], facts) is None
    facts = example("slow_loader").facts
    starved = facts.step_ns / 1e3 - facts.gpu.busy.total / facts.steps.count / 1e3
    together = combine([finding("DL001", 15_000, without(facts, "data_loading"))], facts)
    assert together is not None
    assert together.saving_us == pytest.approx(starved, rel=0.02)
    assert together.limit_after == "compute"


def test_cheap_and_unpriced_findings_do_not_count(example: GetExample) -> None:
    facts = example("slow_loader").facts
    low = replace(finding("DL001", 100).finding, impact="low")
    info = replace(low, impact="info", saving=None)
    assert combine([Priced(low), Priced(info)], facts) is None


def test_no_fix_saves_the_whole_step(example: GetExample) -> None:
    """Not even on a CPU-only run, where one path is the step."""
    facts = example("cpu_only").facts
    step_us = facts.step_ns / 1e3
    most = finding("DL001", step_us)
    combined = combine([most, finding("LG001", step_us)], facts)
    assert combined is not None
    assert combined.saving_us == pytest.approx(0.95 * step_us)


def test_a_sampled_file_has_no_common_saving(example: GetExample, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = example("slow_loader")
    assert subject.result.combined is not None
    monkeypatch.setattr(TraceQuality, "sampled_share", 0.01)
    assert combine([Priced(one) for one in subject.result.findings], subject.facts) is None
