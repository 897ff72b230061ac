"""`--format agent`: verdict, plan, evidence, lines and changes, as Markdown that fits into a small budget."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from msgspec import Struct

from traceopt.reports.agent import words
from traceopt.reports.agent.tokens import estimated_tokens
from traceopt.reports.text.markdown_escaping import code, code_block, prose, prose_with_names
from traceopt.reports.words import rank_words, run_words, safe_text, step_words
from traceopt.reports.words.companions.sections import companion_lines
from traceopt.reports.words.display import for_display
from traceopt.reports.words.fixes import fix_cards, headline, plan_numbers
from traceopt.reports.words.step_words import step_noun
from traceopt.result.document import Result
from traceopt.result.words import quantities

MAX_TOKENS = 1_500
LEAST_SHARE = 0.01  # smaller parts of the step are left out
NOTES, FIXES, DETAILED, EVIDENCE, PLACES = 4, 12, 5, 4, 3
_CUT = "Cut to fit the budget; `traceopt analyze --format json` has everything."


class _Detail(Struct, frozen=True):
    """How many fixes have details, how many rows of evidence each, and how many of them their patch or example."""

    fixes: int
    evidence: int
    changes: int


# From most to least: rows of evidence go before code, and code before the details of a fix.
_LEVELS = [
    _Detail(fixes, evidence, changes)
    for fixes in range(DETAILED, -1, -1)
    for changes, evidence in product(range(fixes, -1, -1), range(EVIDENCE, 0, -1))
]


def render_agent(result: Result, max_tokens: int = MAX_TOKENS) -> str:
    """Markdown of at most `max_tokens` (from 200) estimated tokens. Details of the least valuable fixes go first."""
    document = for_display(result)
    cards = fix_cards.cards(document)
    text = ""
    for level in _LEVELS:
        text = _joined([*_summary(document), *_details(document, cards, level), _verification(document)])
        if estimated_tokens(text) <= max_tokens:
            return text
    return _cut(text, max_tokens)


def _summary(result: Result) -> list[str]:
    lead, slow = prose("".join(headline.lead(result))), prose(rank_words.slow_ranks(result) or "")
    heading = run_words.quality_heading(result)
    return [
        f"# traceopt: {prose(run_words.verdict(result))}",
        f"traceopt analyzed {words.analyzed_files(result)}. {words.UNTRUSTED}",
        _section("Job", [line for line in (_job(result), lead, slow) if line]),
        _section(
            heading or "", [f"- {prose(_first(note.text))} ({note.code})" for note in result.quality.notes[:NOTES]]
        ),
        _section("Warnings", _warnings(result)),
        _section("Where the time goes", _breakdown(result)),
        _section(
            "Other files of the run" if words.has_trace(result) else "What the files say",
            [f"- {prose(line)}" for line in companion_lines(result)],
        ),
        *_fixes(result),
    ]


def _warnings(result: Result) -> list[str]:
    lines = [f"- {prose(warning)}" for warning in result.warnings[:NOTES]]
    more = len(result.warnings) - NOTES
    return [*lines, f"- and {quantities.counted(more, 'more warning')}"] if more > 0 else lines


def _job(result: Result) -> str:
    if not words.has_trace(result):
        return ""
    facts = f"{prose(', '.join(run_words.environment(result)))}."
    if result.step.typical_us is None:
        return facts
    bound = words.limit(result)
    limited = f", {bound}" if bound else ""
    return f"{facts} {step_noun(result).capitalize()}: {quantities.ms_of_us(result.step.typical_us)}{limited}."


def _breakdown(result: Result) -> list[str]:
    sides = step_words.sides(result)
    return [
        f"- {sides.busy if part.busy else sides.idle}, {prose(part.label)}: "
        f"{quantities.ms_of_us(part.us_per_step)} ({quantities.percent(part.share)})"
        for part in result.breakdown
        if part.share >= LEAST_SHARE
    ] + [f"- {prose(line)}" for line in run_words.gpus(result)]


def _fixes(result: Result) -> list[str]:
    """One line per finding, numbered as in the report: the plan, with what each fix saves on top of those before it,
    then the findings that are not in it.
    """
    groups = fix_cards.groups(result)
    sections = [
        ("Before all others", groups.urgent),
        (f"{fix_cards.ACROSS_RANKS}", groups.above),
        ("Plan, in this order", groups.plan),
        (fix_cards.unplanned(result) if groups.plan else "Fixes", groups.rest),
        (fix_cards.MINOR, groups.minor),
        ("Without an estimate", groups.later),
    ]
    left, blocks = FIXES, []
    for heading, cards in sections:
        lines = [_fix(card, result) for card in cards[:left]]
        lines += [f"- and {len(cards) - left} more"] if len(cards) > left else []
        blocks.append(_section(heading, lines))
        left = max(0, left - len(cards))
    return blocks


def _fix(card: fix_cards.Card, result: Result) -> str:
    finding, saving, place = card.finding, card.finding.saving, fix_cards.place(card.finding)
    saved = []
    if card.row is not None:
        numbers = plan_numbers.row_numbers(card.row, result)
        saved = [f"saves {numbers.saves}, step then {numbers.step_after}"]
    elif saving is not None:
        saved = [f"saves {quantities.estimated(saving.est_us)} alone"]
    facts = [*saved, f"{finding.confidence} confidence", fix_cards.needs(card), code(place) if place else ""]
    bullet = "-" if card.number is None else f"{card.number}."
    return f"{bullet} {card.finding.id}: {prose(fix_cards.title(card, result))}; {', '.join(filter(None, facts))}"


def _details(result: Result, cards: Sequence[fix_cards.Card], level: _Detail) -> list[str]:
    sections = []
    for index, card in enumerate(cards[: level.fixes]):
        finding = card.finding
        places = [code(place.shown) for place in finding.locations[1:PLACES]]  # the first is in the plan
        lines = [
            prose(finding.why),
            *(f"- {words.evidence_row(row, result, prose_with_names)}" for row in finding.evidence[: level.evidence]),
            *([f"Also: {', '.join(places)}"] if places else []),
            f"Fix: {prose(finding.fix.text)} Risk: {prose(finding.risk_words)}.",
            *(_change(card) if index < level.changes else []),
        ]
        sections.append(_section(card.finding.id, lines))
    return sections


def _change(card: fix_cards.Card) -> list[str]:
    """The patch, or an example."""
    fix = card.finding.fix
    if fix.patch:
        return [code_block(fix.patch, "diff")]
    return [code_block(fix.code, "python")] if fix.code else []


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
