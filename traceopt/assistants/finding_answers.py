"""The answers about one run: its verdict and plan, and one finding."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from traceopt.assistants.answers import UNTRUSTED, AnalyzeAnswer, ExplainAnswer, FoundProblem, StepPart
from traceopt.assistants.budget import milliseconds
from traceopt.reports.agent import words
from traceopt.reports.words import run_words, safe_text, step_words
from traceopt.reports.words.companions.sections import companion_lines
from traceopt.reports.words.display import for_display
from traceopt.reports.words.fixes import fix_cards, plan_numbers
from traceopt.result.document import Result
from traceopt.result.finding import Finding, Location
from traceopt.result.sections.work_rows import PlanRow
from traceopt.rules.fixes.patches.files import find_source

OTHER_FINDINGS = 5
PLACES = 2
LEAST_SHARE = 0.01  # smaller parts of the step are left out
LINES_AROUND = 4
_WRONG = "When it is wrong"


def analyzed(result: Result) -> AnalyzeAnswer:
    document = for_display(result)
    rows = {row.finding: row for row in document.plan}
    cards = fix_cards.cards(document)
    id_of = {card.number: card.finding.id for card in cards if card.number is not None}
    same_cause = {card.finding.id: [id_of[number] for number in card.instead_of] for card in cards}
    others = [finding for finding in document.findings if finding.id not in rows]
    combined = document.combined
    return AnalyzeAnswer(
        untrusted_text=UNTRUSTED,
        verdict=run_words.verdict(document),
        job=", ".join(run_words.environment(document)),
        quality=document.quality.verdict,
        notes=[f"{note.code}: {note.text}" for note in document.quality.notes] + document.warnings,
        step_ms=milliseconds(document.step.typical_us)
        if combined is None
        else plan_numbers.shown_time(combined.step_us_after + combined.saving_us, document) / 1e3,
        step_after_ms=None if combined is None else plan_numbers.shown_time(combined.step_us_after, document) / 1e3,
        saves=plan_numbers.saved_together(document) or None,
        limit=words.limit(document),
        limit_after=None if combined is None else step_words.limit(combined.limit_after),
        beside_the_trace=companion_lines(document),
        breakdown=[
            StepPart(part.label, milliseconds(part.us_per_step) or 0.0, round(part.share, 3), part.busy)
            for part in document.breakdown
            if part.share >= LEAST_SHARE
        ],
        plan=[_problem(document, finding, row) for row, finding in document.planned],
        other_findings=[
            _problem(document, finding, None, same_cause[finding.id]) for finding in others[:OTHER_FINDINGS]
        ],
    )


def explained(
    result: Result, wanted: Finding, others: Sequence[Finding], page: str, folders: Sequence[Path]
) -> ExplainAnswer:
    """`others`: what its rule also found. `page`: the rule's documentation. `folders`: where the source may be."""
    document = for_display(replace(result, findings=[wanted, *others]))
    finding, *others = document.findings
    first = next(iter(wanted.locations), None)
    return ExplainAnswer(
        untrusted_text=UNTRUSTED,
        id=finding.id,
        title=fix_cards.name(finding, document),
        also_found=[_problem(document, other, None) for other in others],
        why=finding.why,
        evidence=[words.evidence_row(row, document) for row in finding.evidence],
        where=[str(place) for place in finding.locations],
        source_lines=_source_lines(first, folders),
        saves=words.saving(finding, document) or None,
        fix=finding.fix.text,
        example=finding.fix.code,
        has_patch=finding.fix.patch is not None,
        how_sure=f"{finding.confidence}: {fix_cards.CONFIDENCE_WORDS[finding.confidence]}",
        when_wrong=next((" ".join(part.split()) for part in page.split("\n\n") if part.startswith(_WRONG)), None),
        effort=finding.effort,
        risk=finding.risk_words,
        verify=words.verification(document),
    )


def _problem(result: Result, finding: Finding, row: PlanRow | None, same_cause_as: Sequence[str] = ()) -> FoundProblem:
    times = None if row is None else plan_numbers.row_times(row, result)
    alone_us = finding.saving.est_us if finding.saving is not None else None
    return FoundProblem(
        id=finding.id,
        title=fix_cards.name(finding, result),
        confidence=finding.confidence,
        where=[str(place) for place in finding.locations[:PLACES]]
        or [one for one in [fix_cards.place(finding)] if one],
        saves_ms=None if times is None else times.saves / 1e3,
        saves_alone_ms=milliseconds(alone_us) if times is None else times.alone / 1e3,
        step_after_ms=None if times is None else times.step_after / 1e3,
        needs=[] if row is None else [result.plan[number - 1].finding for number in row.needs],
        same_cause_as=list(same_cause_as),
        has_patch=finding.fix.patch is not None,
    )


def _source_lines(place: Location | None, folders: Sequence[Path]) -> list[str]:
    """ "118  loader = DataLoader(...)": the line of the place and those around it; empty without the source."""
    source = find_source(place.file, folders) if place is not None and place.line is not None else None
    if source is None or place is None or place.line is None or place.line > len(source.lines):
        return []
    first = max(1, place.line - LINES_AROUND)
    lines = source.lines[first - 1 : place.line + LINES_AROUND]
    return [f"{number}  {safe_text.clean(line.rstrip())}" for number, line in enumerate(lines, first)]
