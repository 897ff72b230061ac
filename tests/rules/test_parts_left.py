"""The step that the plan leaves: each part changes as in the replay, so none grows that the fixes do not touch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.traces import GENERATED, AnalyzedTrace, GetExample, over

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import Change
from traceopt.analyzer.vocabulary.causes.cause import Cause
from traceopt.analyzer.vocabulary.causes.table import CAUSE_OF_KEY, DATA_LOADING, LAUNCH, PROFILER
from traceopt.api import analyze
from traceopt.document.plan_rows import UNEXPLAINED_SHARE, _idle_left, _undone, parts_left, treated_parts
from traceopt.document.sections import breakdown

FIVE_FAULTS = Path(__file__).resolve().parents[2] / "fixtures" / "traces" / "five_faults.json.gz"


def planned(trace: AnalyzedTrace) -> tuple[list[Change], float]:
    """The changes of the plan, and the step that it leaves, us."""
    plan = trace.outcome.plan
    changes = plan.savings.changes(plan.fixes) if trace.facts.replay_trusted else []
    return changes, (plan.step_ns - plan.saving_ns) / 1e3


def assert_as_replayed(
    now_us: Mapping[Cause, float], left: Mapping[Cause, float], facts: Facts, changes: list[Change]
) -> None:
    """Idle time as a whole too: the replay may give it other causes than the breakdown."""
    if not left:
        return
    before, after = facts.parts_of(facts.replayed), facts.parts_of(facts.replay(changes))
    step_us, replayed_us = sum(now_us.values()), facts.replayed.step_ns / 1e3
    apart = {cause for cause in after if cause.busy or not facts.has_gpu}
    for group in [*({part} for part in {*now_us, *after}), {*now_us, *after} - apart]:
        now, was, becomes, remains = (
            sum(parts.get(part, 0.0) for part in group) for parts in (now_us, before, after, left)
        )
        grows_us = max(0.0, becomes - was) / 1e3 * step_us / replayed_us
        assert -0.001 <= remains <= now + grows_us + 0.001, group


@over(GENERATED)
def test_a_part_changes_as_in_the_replay(trace: AnalyzedTrace) -> None:
    facts = trace.facts
    changes, left_us = planned(trace)
    if not changes:
        return
    now_us = {CAUSE_OF_KEY[part.name]: part.us_per_step for part in breakdown(facts)}
    left = parts_left(now_us, left_us, facts.replayed, facts.replay(changes), facts)
    if left:
        assert sum(left.values()) == pytest.approx(left_us, rel=1e-6)
    assert_as_replayed(now_us, left, facts, changes)


@pytest.mark.parametrize("scenario", ["slow_loader", "five_faults", "cpu_only"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(factors=st.lists(st.floats(0.6, 1.4), min_size=20, max_size=20))
def test_steps_unlike_the_replayed_ones(example: GetExample, scenario: str, factors: list[float]) -> None:
    """The breakdown is of all typical steps, the replay of those without the first: on a busy machine they differ."""
    facts = example(scenario).facts
    changes, left_us = planned(example(scenario))
    assert changes
    parts = zip(breakdown(facts), factors, strict=False)
    now_us = {CAUSE_OF_KEY[part.name]: part.us_per_step * factor for part, factor in parts}
    saved = 1 - left_us * 1e3 / facts.step_ns
    left_us = sum(now_us.values()) * (1 - saved)
    left = parts_left(now_us, left_us, facts.replayed, facts.replay(changes), facts)
    if left:
        assert sum(left.values()) == pytest.approx(left_us, rel=1e-6)
        assert all(us >= 0 for us in left.values())
    assert_as_replayed(now_us, left, facts, changes)


@pytest.mark.parametrize("scenario", ["slow_loader", "launch_bound", "item_stall", "logging_stall", "fp32_matmul"])
def test_one_fault_explains_what_is_left(example: GetExample, scenario: str) -> None:
    combined = example(scenario).result.combined
    assert combined is not None
    assert combined.breakdown_after


def test_idle_time_may_have_other_causes_in_the_replay() -> None:
    """The wait for a value that is read from the GPU is launch time once the replay has moved it: with the fix, as
    little is left of it as of that, and what is left of the wait for data is what its fix leaves.
    """
    result = analyze(str(FIVE_FAULTS))
    assert result.combined is not None
    assert result.combined.limit_after == "compute"
    now, after = (
        {part.name: part.us_per_step for part in parts} for parts in (result.breakdown, result.combined.breakdown_after)
    )
    [loader] = [row for row in result.plan if row.code == "DL001"]
    assert now["data_loading"] - after["data_loading"] == pytest.approx(loader.saving_us, rel=0.01)
    assert after["host_sync"] < 0.05 * now["host_sync"]


def test_a_cause_that_no_fix_touches_stays() -> None:
    """Under another name in the replay, too."""
    now = {PROFILER: 100.0, LAUNCH: 20.0, DATA_LOADING: 50.0}
    replayed = {LAUNCH: 120.0, DATA_LOADING: 50.0}
    assert _idle_left(now, replayed, {LAUNCH: 120.0, DATA_LOADING: 0.0}) == {**now, DATA_LOADING: 0.0}
    half = _idle_left(now, replayed, {LAUNCH: 60.0, DATA_LOADING: 50.0})
    assert half == {PROFILER: 50.0, LAUNCH: 10.0, DATA_LOADING: 50.0}


@over(GENERATED)
def test_no_part_shrinks_that_no_fix_treats_while_treated_ones_grow_back(trace: AnalyzedTrace) -> None:
    """If the replay saves more than the measured costs allow, what is undone first is what only follows."""
    plan, facts = trace.outcome.plan, trace.facts
    changes, left_us = planned(trace)
    if not changes:
        return
    now_us = {CAUSE_OF_KEY[part.name]: part.us_per_step for part in breakdown(facts)}
    replays = facts.replayed, facts.replay(changes)
    whole = parts_left(now_us, sum(now_us.values()) - plan.savings.by_replay(plan.fixes) / 1e3, *replays, facts)
    left = parts_left(now_us, left_us, *replays, facts, plan.fixes)
    if not left or not whole:
        return
    treated = treated_parts(plan.fixes, facts)
    follows = [part for part in left if part not in treated and left[part] < now_us.get(part, 0.0) - 0.001]
    if follows:
        assert all(left[part] == pytest.approx(whole[part], abs=1.0) for part in treated if part in left)


def test_a_change_that_only_follows_is_undone_first() -> None:
    now = {LAUNCH: 60.0, PROFILER: 20.0, DATA_LOADING: 20.0}
    left = {LAUNCH: 10.0, PROFILER: 5.0, DATA_LOADING: 20.0}
    assert _undone(now, left, 45.0, {LAUNCH}) == {**left, PROFILER: 15.0}
    assert _undone(now, left, 60.0, {LAUNCH}) == pytest.approx({**now, LAUNCH: 20.0})
    assert _undone(now, left, 45.0, set()) == pytest.approx(
        {LAUNCH: 10 + 50 * 10 / 65, PROFILER: 5 + 15 * 10 / 65, DATA_LOADING: 20.0}
    )


def test_parts_that_do_not_explain_the_step_are_not_told(example: GetExample) -> None:
    facts = example("slow_loader").facts
    changes, left_us = planned(example("slow_loader"))
    now_us = {CAUSE_OF_KEY[part.name]: part.us_per_step for part in breakdown(facts)}
    assert parts_left(now_us, left_us, facts.replayed, facts.replay(changes), facts)
    replays = facts.replayed, facts.replay(changes)
    assert parts_left(now_us, left_us / (1 + 2 * UNEXPLAINED_SHARE), *replays, facts) == {}
