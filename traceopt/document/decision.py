"""What to do about the findings of one rank: their order, the plan, what it saves, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from msgspec.structs import replace

from traceopt.analyzer.facts import Facts
from traceopt.document.companions.sections import companion_ending
from traceopt.document.plan_rows import combine, document_rows
from traceopt.document.quality import allowed
from traceopt.document.run.whole_run import of_the_run
from traceopt.document.verdict import verdict
from traceopt.result.document import Check, Combined, Quality, Result
from traceopt.result.finding import Finding
from traceopt.result.sections.run import WholeRun
from traceopt.result.sections.work_rows import BreakdownPart, PlanRow
from traceopt.result.words.message import Spoken
from traceopt.rules.engine import RulesOutcome
from traceopt.rules.fingerprint import with_ids


class Decision(Spoken, frozen=True):
    """The fields of the document that follow from all findings together."""

    messages: ClassVar = ("verdict", "ending")

    verdict: str
    ending: str | None
    findings: list[Finding]
    plan: list[PlanRow]
    combined: Combined | None
    checks: list[Check]

    @property
    def fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__struct_fields__}


def decide(
    facts: Facts, outcome: RulesOutcome, quality: Quality, breakdown: Sequence[BreakdownPart], run_time: WholeRun | None
) -> Decision:
    """The decision as far as the trace can be judged. `breakdown`, `run_time`: the step and the run as they are."""
    may, findings = allowed(facts, quality), judged(facts, outcome, quality)
    plan = outcome.plan if may.savings else None
    rows = document_rows(plan, findings[: len(plan.rows)]) if plan is not None else []
    combined = combine(plan, rows, breakdown, facts) if plan is not None else None
    beside = of_the_run(facts, run_time, combined.share if combined is not None else 0.0)
    headline = verdict(facts, quality, breakdown, outcome.priced, outcome.priced[: len(rows)], beside)
    failure = facts.captured.failure
    ending = failure.sentence if failure is not None else companion_ending(facts)
    whole = f"{ending} {headline}" if ending else headline
    return Decision(whole, ending, findings, rows, combined, outcome.checks)


def judged(facts: Facts, outcome: RulesOutcome, quality: Quality) -> list[Finding]:
    """The findings, with their rank and without what the trace cannot tell."""
    may, rank = allowed(facts, quality), facts.trace.meta.rank
    ranked = (replace(finding, ranks=finding.ranks or ([] if rank is None else [rank])) for finding in outcome.findings)
    return with_ids([may.finding(one) for one in ranked])


def decided_again(document: Result, facts: Facts, outcome: RulesOutcome) -> Decision:
    """The decision on another outcome of the same trace."""
    return decide(facts, outcome, document.quality, document.breakdown, document.whole_run)
