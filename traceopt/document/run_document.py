"""The document of a run: the shown rank's, in view of all ranks, and what their comparison finds."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from traceopt.analyzer.ranks.run_facts import RunFacts
from traceopt.document.communication_section import expert_layer_rows, expert_rows, pipeline_row
from traceopt.document.merge import MergedRun, plan_first
from traceopt.document.rank_views import rank_views
from traceopt.document.run.run_ranks import run_ranks
from traceopt.document.sections import phases_of_run
from traceopt.result.document import Check, Result
from traceopt.result.finding import Finding, impact_of_share
from traceopt.result.sections.rank_rows import RankRow, RankSteps
from traceopt.result.sections.step import Communication
from traceopt.result.words.message import ms
from traceopt.result.words.quantities import in_sentence
from traceopt.result.words.rounding import us
from traceopt.rules.bases.rank_rule import rank_names
from traceopt.rules.engine import RulesOutcome, in_view_of_ranks, run_rank_rules
from traceopt.rules.fingerprint import with_ids
from traceopt.rules.rule import Rule

MOST_RANKS = 16  # whose steps are in the document


def run_document(
    merged: MergedRun, shown: Result, rules: Sequence[Rule], warnings: Sequence[str], *, several: bool, debug: bool
) -> Result:
    """The document of all ranks. `shown` is the document of the lowest rank, `warnings` come from reading the files.
    With `several`, the user asked for more than one file, so missing ranks are a warning.
    """
    run = RunFacts(merged.summaries)
    if (decision := merged.refuted.get(_refuted(shown, rules, run, debug))) is not None:
        shown = replace(shown, **decision.fields)
    result = merged.around(shown)
    findings, checks = _in_view_of_ranks(result, rules, run, debug)
    of_code = {check.code: check for check in checks}
    outcome = run_rank_rules(rules, run, debug=debug)
    if run.missing is not None and (several or result.communication.us_per_step):
        warnings = [*warnings, run.missing]
    compared = _with_compared(replace(result, findings=findings), outcome)
    result = replace(
        _with_steps_of_ranks(result, run),
        communication=_of_all_ranks(result, run),
        rl_phases=phases_of_run(run, result.step.typical_us) or result.rl_phases,
        ranks=_rows(result, run),
        whole_run=result.whole_run and replace(result.whole_run, ranks=run_ranks(run)),
        findings=compared,
        verdict=_late_ranks(run, compared) + result.verdict,
        quality=replace(result.quality, notes=[*result.quality.notes, *outcome.notes]),
        checks=[*(of_code.get(check.code, check) for check in result.checks), *outcome.checks],
    )
    views = rank_views(merged, run, result)
    return replace(result, rank_views=views, warnings=[*_failed_rules(result), *result.warnings, *warnings])


def _refuted(shown: Result, rules: Sequence[Rule], run: RunFacts, debug: bool) -> frozenset[str]:
    """The rules of the fixes for which the document of the shown rank states a saving, while other ranks show none."""
    findings, _ = _in_view_of_ranks(shown, rules, run, debug)
    pairs = zip(shown.findings, findings, strict=True)
    return frozenset(one.code for one, now in pairs if one.saving is not None and now.saving is None)


def _in_view_of_ranks(
    result: Result, rules: Sequence[Rule], run: RunFacts, debug: bool
) -> tuple[list[Finding], list[Check]]:
    vendor = result.run.device.vendor if result.run.device is not None else None
    return in_view_of_ranks(rules, result.findings, run, vendor, debug=debug)


def _with_compared(result: Result, outcome: RulesOutcome) -> list[Finding]:
    """The findings with those of the rules that compare all ranks. What these save comes first if it is more than the
    first fix of the plan saves, or any of the shown rank if there is no plan.
    """
    rank = result.run.shown_rank
    own = (one.saving.est_us for one in result.findings if one.saving is not None and rank in one.ranks)
    first_us = result.plan[0].saving_us if result.plan else max(own, default=0.0)
    new = [_of_shown_step(finding, result) for finding in outcome.findings]
    above = [one for one in new if one.saving is not None and one.saving.est_us > first_us]
    others = [one for one in new if one not in above]
    return with_ids([*above, *plan_first([*result.findings, *others], result.plan)])


def _late_ranks(run: RunFacts, findings: Sequence[Finding]) -> str:
    """A sentence for the headline if the first fix is one of late ranks: for whom the others wait, and why."""
    run = run.without_engines
    late, first = run.straggler, next(iter(findings), None)
    if late is None or first is None or first.code != "CM004":
        return ""
    if first.ranks != [run.ranks[index].rank for index in late.ranks]:
        return ""  # it is of uneven work
    waits = f"The other ranks wait {ms(late.own_wait_ns)} per step for {rank_names(run, late.ranks)}. "
    if late.cause is None:
        return waits
    are = "It is" if len(late.ranks) == 1 else "They are"
    return f"{waits}{are} late because of this: {in_sentence(late.cause.label)}. "


def _of_shown_step(finding: Finding, result: Result) -> Finding:
    """The finding with its saving as a part of the step that the document shows, as all other shares in it."""
    saving, step_us = finding.saving, result.step.typical_us
    if saving is None or not step_us:
        return finding
    share = round(min(1.0, saving.est_us / step_us), 6)
    return replace(finding, saving=replace(saving, share=share), impact=impact_of_share(share))


def _rows(result: Result, run: RunFacts) -> list[RankRow]:
    """The rows of the ranks, with the time that the others wait for each of them."""
    run = run.without_engines
    if run.incomparable is not None or not run.step_names or not run.matched.count:
        return result.ranks
    waits = iter(run.waits_in_median_step)
    return [replace(row, waited_for_us=us(next(waits))) if row.engine is None else row for row in result.ranks]


def _of_all_ranks(result: Result, run: RunFacts) -> Communication:
    """The communication of the shown rank, with how long it waits for others in each process group, the other stages of
    its pipeline, and the experts of all ranks.
    """
    waits = run.waits_of_groups(result.run.shown_rank)
    groups = [
        replace(group, late_us_per_step=us(wait.wait_ns), latest_rank=wait.latest_rank)
        if (wait := waits.get(group.name)) is not None
        else group
        for group in result.communication.groups
    ]
    pipelines = (
        [pipeline_row(run.ranks[index].rank, stage) for index, stage in pipeline.stages.items()]
        for pipeline in run.pipelines
    )
    own = next((rows for rows in pipelines if any(row.rank == result.run.shown_rank for row in rows)), None)
    return replace(
        result.communication,
        groups=groups,
        pipeline=own or result.communication.pipeline,
        experts=expert_rows([(rank.rank, rank.experts) for rank in run.ranks if rank.experts is not None]),
        expert_layers=expert_layer_rows(run),
    )


def _with_steps_of_ranks(result: Result, run: RunFacts) -> Result:
    """The document with the steps of the first ranks that recorded the same steps as the shown one."""
    series = result.step.series
    if series is None or len(run.ranks) < 2:
        return result
    shown = slice(series.first, series.first + len(series.names))
    ranks = [
        RankSteps(rank.rank, [us(ns) for ns in rank.durations[shown]])
        for rank in run.without_engines.ranks
        if rank.step_names[shown] == series.names
    ]
    series = replace(series, ranks=ranks[:MOST_RANKS] if len(ranks) > 1 else [])
    return replace(result, step=replace(result.step, series=series))


def _failed_rules(result: Result) -> list[str]:
    """One line for each rule that raised: its code, its name, and the error."""
    return [f"rule {c.code} ({c.name}) failed: {c.reason}" for c in result.checks if c.status == "error"]
