"""The document once all ranks were read: findings that other ranks decide, and the plan that follows."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from traceopt.analyzer.ranks.run_facts import RunFacts
from traceopt.document.merge import plan_first
from traceopt.result.document import Combined, Result
from traceopt.result.finding import Finding
from traceopt.result.rows import PlanRow
from traceopt.rules.engine import settle
from traceopt.rules.plan import MIN_ROW_SHARE
from traceopt.rules.rule import Rule
from traceopt.rules.savings.known_error import MAX_SAVED_SHARE

_NEXT_SENTENCE = re.compile(r"(?<=[.:]) (?=[A-Z])")


def with_settled_findings(result: Result, rules: Sequence[Rule], run: RunFacts, *, debug: bool = False) -> Result:
    """The document with the findings of single ranks in view of all ranks. One that lost its saving leaves the plan."""
    vendor = result.run.device.vendor if result.run.device is not None else None
    findings, checks = settle(rules, result.findings, run, vendor, debug=debug)
    of_code = {check.code: check for check in checks}
    result = replace(result, checks=[of_code.get(check.code, check) for check in result.checks])
    pairs = list(zip(result.findings, findings, strict=True))
    lost = {now.id for before, now in pairs if before.saving is not None and now.saving is None}
    if not lost:
        return replace(result, findings=findings)
    plan = _plan_without(result.plan, lost, result.step.typical_us or 0.0)
    same = len(plan) == len(result.plan)  # so is what other fixes save after it
    findings = [one if same and one.id not in lost else replace(one, after_plan_us=None) for one in findings]
    combined = None if result.combined is None else _combined(result.combined, plan)
    return replace(
        result,
        findings=plan_first(findings, plan),
        plan=plan,
        combined=combined,
        verdict=_verdict_without(result.verdict, [one for one in result.findings if one.id in lost]),
    )


def _plan_without(plan: Sequence[PlanRow], lost: Collection[str], step_us: float) -> list[PlanRow]:
    """The plan without these findings. What was replayed after one of them counts at most what it saves
    alone, because it was not replayed without.
    """
    kept: list[PlanRow] = []
    numbers: dict[int, int] = {}  # of the rows, from 1, before and after
    for before, row in enumerate(plan, 1):
        changed = len(numbers) < before - 1
        saving_us = min(row.saving_us, row.alone_us) if changed else row.saving_us
        if row.finding in lost or (changed and saving_us < MIN_ROW_SHARE * step_us):
            continue
        step_after_us = round((kept[-1].step_us_after if kept else step_us) - saving_us, 3)
        kept.append(
            replace(
                row,
                saving_us=saving_us,
                low_us=min(row.low_us, saving_us),
                step_us_after=step_after_us,
                needs=[numbers[number] for number in row.needs if number in numbers],
                same_call=numbers.get(row.same_call) if row.same_call is not None else None,
            )
        )
        numbers[before] = len(kept)
    return kept


def _combined(combined: Combined, plan: Sequence[PlanRow]) -> Combined | None:
    """The fixes that are left together. What limits the step after them was not replayed."""
    if not plan:
        return None
    saving_us, after_us = round(sum(row.saving_us for row in plan), 3), plan[-1].step_us_after
    most_us = MAX_SAVED_SHARE * (saving_us + after_us)
    share, bare = round(saving_us / (saving_us + after_us), 6), combined.unrecorded
    if bare is not None:
        gain_us = (bare.step_us - bare.step_us_after) * min(1.0, saving_us / combined.saving_us)
        bare = replace(bare, step_us_after=round(bare.step_us - gain_us, 3))
    return replace(
        combined,
        codes=[row.code for row in plan],
        saving_us=saving_us,
        share=share,
        step_us_after=after_us,
        limit_after=None,
        breakdown_after=[],
        low_us=round(sum(row.low_us for row in plan), 3),
        high_us=round(max(saving_us, min(sum(row.high_us for row in plan), most_us)), 3),
        unrecorded=bare,
    )


def _verdict_without(verdict: str, findings: Sequence[Finding]) -> str:
    """The verdict without the sentences that name one of these fixes."""
    named = [name for one in findings for name in (one.title[:1].lower() + one.title[1:], f", {one.code}, saves")]
    sentences = _NEXT_SENTENCE.split(verdict)
    return " ".join(one for one in sentences if not any(name in one for name in named))
