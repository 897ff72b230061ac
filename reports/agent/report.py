"""`--format agent`: verdict, plan, evidence, lines and how to verify, as Markdown that fits into a small budget."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from traceopt.reports.agent import words
from traceopt.reports.agent.tokens import estimated_tokens
from traceopt.reports.text.markdown_escaping import code, prose
from traceopt.reports.words import headline, plan_numbers, safe_text, sentences
from traceopt.reports.words.companions.lines import companion_lines
from traceopt.reports.words.display import for_display
from traceopt.reports.words.step_words import step_noun
from traceopt.result import quantities
from traceopt.result.document import Result
from traceopt.rules.fingerprint import finding_ids

MAX_TOKENS = 1_500
LEAST_SHARE = 0.01  # smaller parts of the step are left out
NOTES, FIXES, DETAILED, EVIDENCE, PLACES = 4, 12, 5, 4, 3
_CUT = "Cut to fit the budget; `traceopt analyze --format json` has everything."


def render_agent(result: Result, max_tokens: int = MAX_TOKENS) -> str:
    """Markdown of at most `max_tokens` (from 200) estimated tokens. Details of the least valuable fixes go first."""
    document = for_display(result)
    cards = sentences.cards(document)
    ids = dict(zip((card.anchor for card in cards), finding_ids(result.findings), strict=True))
    text = ""
    for detailed, evidence in product(range(DETAILED, -1, -1), range(EVIDENCE, 0, -1)):
        text = _joined(
            [*_summary(document, ids), *_details(document, cards[:detailed], evidence, ids), _verification(document)]
        )
        if estimated_tokens(text) <= max_tokens:
            return text
    return _cut(text, max_tokens)


def _summary(result: Result, ids: dict[str, str]) -> list[str]:
    lead = prose("".join(headline.lead(result)))
    heading = sentences.quality_heading(result)
    return [
        f"# traceopt: {prose(sentences.verdict(result))}",
        f"traceopt analyzed {words.analyzed_files(result)}. {words.UNTRUSTED}",
        _section("Job", [line for line in (_job(result), lead) if line]),
        _section(
            heading or "", [f"- {prose(_first(note.text))} ({note.code})" for note in result.quality.notes[:NOTES]]
        ),
        _section("Where the time goes", _breakdown(result)),
        _section(
            "Beside the trace" if words.has_trace(result) else "What the files say",
            [f"- {prose(line)}" for line in companion_lines(result)],
        ),
        _section("Plan, in this order" if result.plan else "Findings", _fixes(result, ids)),
    ]


def _job(result: Result) -> str:
    if not words.has_trace(result):
        return ""
    facts = f"{prose(', '.join(sentences.environment(result)))}."
    if result.step.typical_us is None:
        return facts
    bound = words.limit(result)
    limited = f", {bound}" if bound else ""
    return f"{facts} {step_noun(result).capitalize()}: {quantities.ms_of_us(result.step.typical_us)}{limited}."


def _breakdown(result: Result) -> list[str]:
    sides = sentences.sides(result)
    return [
        f"- {sides.busy if part.busy else sides.idle}, {prose(part.label)}: "
        f"{quantities.ms_of_us(part.us_per_step)} ({quantities.percent(part.share)})"
        for part in result.breakdown
        if part.share >= LEAST_SHARE
    ]


def _fixes(result: Result, ids: dict[str, str]) -> list[str]:
    """One line per finding: the plan first, with what each fix saves on top of those before it."""
    groups = sentences.groups(result)
    ordered = [*groups.above, *groups.plan, *groups.rest, *groups.noted]
    lines = []
    for card in ordered[:FIXES]:
        finding, saving = card.finding, card.finding.saving
        facts = [f"{finding.confidence} confidence"]
        if card.row is not None:
            numbers = plan_numbers.row_numbers(card.row, result)
            facts = [f"saves {numbers.saves}, step then {numbers.step_after}", *facts]
        elif saving is not None:
            facts = [f"saves {quantities.estimated(saving.est_us)} alone, not in the plan", *facts]
        else:
            facts = ["saving not estimated", *facts]
        place = sentences.place(finding)
        facts += [need for need in [sentences.needs(card)] if need]
        facts += [code(place)] if place else []
        lines.append(f"- {ids[card.anchor]}: {prose(sentences.title(card, result))}; {', '.join(facts)}")
    if len(ordered) > FIXES:
        lines.append(f"- and {len(ordered) - FIXES} more")
    return lines


def _details(result: Result, cards: Sequence[sentences.Card], evidence: int, ids: dict[str, str]) -> list[str]:
    sections = []
    for card in cards:
        finding = card.finding
        places = ", ".join(code(str(place)) for place in finding.locations[:PLACES])
        lines = [
            prose(finding.why),
            *(f"- {prose(words.evidence_row(row, result))}" for row in finding.evidence[:evidence]),
            *([f"Lines: {places}"] if places else []),
            f"Fix: {prose(finding.fix.text)} Risk: {prose(finding.risk)}.",
            f"How sure: {words.CONFIDENCE_WORDS[finding.confidence]}.",
        ]
        sections.append(_section(f"{ids[card.anchor]}: {prose(finding.title)}", lines))
    return sections


def _verification(result: Result) -> str:
    return _section("Verify each change", [f"{words.verification(result)} {words.when_wrong('CODE')}"])


def _section(heading: str, lines: Sequence[str]) -> str:
    return "\n".join([f"## {heading}", *lines]) if lines else ""


def _joined(blocks: Sequence[str]) -> str:
    text = "\n\n".join(block for block in blocks if block) + "\n"
    return safe_text.without_commands(text.replace(quantities.NO_BREAK_SPACE, " "))


def _first(text: str) -> str:
    return safe_text.first_sentence(text)[0]


def _cut(text: str, max_tokens: int) -> str:
    """The first lines that fit, as on a trace with very long names."""
    kept, left = [], max_tokens - estimated_tokens(f"\n\n{_CUT}\n")
    for line in text.splitlines():
        left -= estimated_tokens(f"{line}\n")
        if left < 0:
            break
        kept.append(line)
    return "\n".join([*kept, "", _CUT]) + "\n"
