"""The comment of a pull request: what limits the step, what changed, the fixes that pay most, all else folded.

The first line is a hidden tag, by which a later run finds the comment and replaces it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from traceopt.reports.text.markdown_escaping import code, code_block, folded, prose, table
from traceopt.reports.words import comparison_words, headline, quantities, sentences
from traceopt.reports.words.shown_document import shown as shown_form
from traceopt.result.comparison import Comparison, FindingStatus, GateOutcome
from traceopt.result.document import Result

LIMIT = 60_000  # characters; GitHub refuses a comment of more than 65,536
LABEL = "traceopt"
FIXES = 5
NOTES = 5  # quality notes and warnings shown of each
PLACES = 8
FINDINGS = 20  # of each kind that the baseline does not have, or has alone
UNCHANGED = "<!-- nothing changed -->"  # such a comment need not be made where there is none yet

_CHANGED: tuple[FindingStatus, ...] = ("new", "fixed", "unknown")
_GATES = {
    ("failed", "fail"): "Failed",
    ("failed", "warn"): "Warning",
    ("not_checked", "fail"): "Failed, not checked",
    ("not_checked", "warn"): "Not checked",
}
_CUT = "Cut to fit into a comment; the report has the rest."


class _Section(Struct, frozen=True):
    """What opens with a click. Where not all parts fit, the last ones are left out."""

    summary: str
    parts: list[str]


def render_markdown(
    result: Result, *, label: str = LABEL, comparison: Comparison | None = None, gates: Sequence[GateOutcome] = ()
) -> str:
    """The comment, in at most `LIMIT` characters. `label` tells the comments of several jobs apart.

    `comparison` is of a baseline and this result.
    """
    shown = shown_form(result)
    against = None if comparison is None else quantities.cleaned(comparison)
    cards = sentences.cards(shown.findings)
    priced = [card for card in cards if card.number is not None]
    head = [
        "\n".join([tag(label), *([UNCHANGED] if _unchanged(against, gates) else [])]),
        f"### traceopt: {prose(sentences.verdict(shown))}",
        *_quality(shown),
        *_lead(shown, against),
        *_gates(gates),
        *_fixes(shown, priced[:FIXES], len(cards)),
    ]
    sections = [
        _Section("What changed", _changes(against)),
        _Section("What to change", [_advice(card) for card in priced[:FIXES]]),
        _Section("Where one step goes", _breakdown(shown)),
        _Section("Also noted", _noted([card for card in cards if card not in priced[:FIXES]])),
        _Section("What was checked", _checks(shown)),
    ]
    foot = _about(shown)
    room = LIMIT - sum(len(block) + 2 for block in [*head, _CUT, foot])
    return "\n\n".join([*head, *_fitting(sections, room), foot]) + "\n"


def tag(label: str) -> str:
    """The hidden line by which the comment is found again."""
    return f"<!-- traceopt:{re.sub(r'[^A-Za-z0-9_.]+', '-', label)[:80]} -->"


def _unchanged(against: Comparison | None, gates: Iterable[GateOutcome]) -> bool:
    if against is None or against.step.verdict != "within_noise":
        return False
    kept = all(finding.status == "kept" for finding in against.findings)
    return kept and all(gate.status == "passed" for gate in gates)


def _quality(result: Result) -> list[str]:
    """What keeps the numbers from being taken at their word, quoted."""
    heading = sentences.quality_heading(result)
    if heading is None:
        return []
    notes = result.quality.notes
    lines = [f"{heading}:"]
    for note in notes[:NOTES]:
        told = note.text if result.quality.verdict == "unusable" else quantities.first_sentence(note.text)[0]
        lines.append(f"- {prose(told)} ({prose(note.code)})")
    if len(notes) > NOTES:
        lines.append(f"- and {quantities.counted(len(notes) - NOTES, 'more note')} in the report")
    return ["\n".join(f"> {line}" for line in lines)]


def _lead(result: Result, against: Comparison | None) -> list[str]:
    """The one bold line: the change where there is a baseline, else what the fixes save."""
    lead = prose("".join(headline.lead(result)))
    if against is None:
        return [f"**{lead}**"] if lead else []
    share = comparison_words.interval(against.step)
    told = [
        f"Against the baseline: {share}." if share is not None else "",
        f"Findings: {comparison_words.findings_line(against.findings)}.",
        lead,
    ]
    return [f"**{prose(against.verdict)}**", " ".join(item for item in told if item)]


def _gates(outcomes: Iterable[GateOutcome]) -> list[str]:
    """Those that have not passed."""
    lines = [
        f"- {_GATES[outcome.status, outcome.level]}: {prose(comparison_words.gate_line(outcome))}"
        for outcome in outcomes
        if outcome.status != "passed"
    ]
    return ["\n".join(lines)] if lines else []


def _fixes(result: Result, shown: list[sentences.Card], findings: int) -> list[str]:
    if not shown:
        return []
    rows = []
    for card in shown:
        finding, saving = card.finding, card.finding.saving
        only = sentences.only_on(finding, result)
        title = f"{finding.title} ({only})" if only else finding.title
        saved = (
            ""
            if saving is None
            else f"{quantities.estimate_number(saving.est_us)} ms ({quantities.percent(saving.share)})"
        )
        place = sentences.place(finding)
        rows.append([
            str(card.number),
            f"{prose(title)} ({prose(finding.code)})",
            saved.replace(" ", quantities.NO_BREAK_SPACE),
            finding.confidence.capitalize(),
            code(quantities.short_path(place)) if place else "–",
        ])  # fmt: skip
    below = []
    if findings > len(shown):
        below.append(f"{quantities.counted(findings - len(shown), 'more finding')} below.")
    if len(shown) > 1:
        below.append("Savings overlap, so do not add them up.")
    fixes = table(["", "Fix", "Saves per step", "Confidence", "Where"], "rlrll", rows)
    return [fixes, " ".join(below)] if below else [fixes]


def _changes(against: Comparison | None) -> list[str]:
    """What else differs from the baseline: numbers, and findings by name."""
    if against is None:
        return []
    metrics = comparison_words.metrics_line(against)
    lines = []
    for status in _CHANGED:
        for finding in comparison_words.of_status(against.findings, status)[:FINDINGS]:
            where = f", {code(quantities.short_path(finding.place))}" if finding.place else ""
            lines.append(
                f"- {comparison_words.STATUS_WORDS[status]}: {prose(finding.title)} ({prose(finding.code)}){where}"
            )
    return [block for block in (prose(f"{metrics}.") if metrics else "", "\n".join(lines)) if block]


def _advice(card: sentences.Card) -> str:
    """Why a fix pays, and how it is made."""
    finding, saving = card.finding, card.finding.saving
    blocks = [f"#### {card.number}. {prose(finding.title)} ({prose(finding.code)})", prose(finding.why)]
    if saving is not None:
        blocks.append(
            f"Saves {quantities.estimate_range(saving.low_us, saving.high_us)} per step. {prose(saving.basis)}"
        )
    blocks.append(f"{prose(finding.fix.text)} Effort: {prose(finding.effort)}. Risk: {prose(finding.risk)}.")
    if finding.fix.patch:
        blocks.append(code_block(finding.fix.patch, "diff"))
    elif finding.fix.code:
        blocks.append(code_block(finding.fix.code, "python"))
    places = [code(str(place)) for place in finding.locations[:PLACES]]
    if len(places) > 1:
        blocks.append(f"Places: {', '.join(places)}{' and more' if len(finding.locations) > PLACES else ''}")
    return "\n\n".join(blocks)


def _breakdown(result: Result) -> list[str]:
    parts = [part for part in result.breakdown if part.us_per_step > 0]
    if not parts:
        return []
    words = sentences.sides(result)
    firsts = {part.busy: part.name for part in reversed(parts)}  # of each side, which the side is named beside
    rows = [
        [
            "" if part.name != firsts[part.busy] else words.busy if part.busy else words.idle,
            prose(part.label),
            quantities.ms_number(part.us_per_step),
            quantities.percent(part.share),
        ]
        for part in parts
    ]
    measured = [f"- {prose(fact)}" for fact in sentences.measured_facts(result)]
    scope = prose(f"{sentences.scope(result)}{sentences.typical_step(result)}. Every millisecond is counted once.")
    blocks = [scope, table(["", "Part", "ms per step", "Share"], "llrr", rows)]
    return [*blocks, "\n".join(measured)] if measured else blocks


def _noted(cards: Iterable[sentences.Card]) -> list[str]:
    lines = []
    for card in cards:
        finding, saving, place = card.finding, card.finding.saving, sentences.place(card.finding)
        saved = "" if saving is None else f", saves {quantities.estimate_number(saving.est_us)} ms"
        where = f", {code(quantities.short_path(place))}" if place else ""
        lines.append(f"- {prose(finding.title)} ({prose(finding.code)}){saved}{where}")
    return ["\n".join(lines)] if lines else []


def _checks(result: Result) -> list[str]:
    if not result.checks:
        return []
    missing = [
        f"- {prose(check.title)} ({prose(check.code)}): {prose(check.reason)}"
        for check in result.checks
        if check.status == "not_checked"
    ]
    warnings = [f"- {prose(warning)}" for warning in result.warnings[:NOTES]]
    return [
        sentences.checks_line(result),
        *(["Not checked:\n\n" + "\n".join(missing)] if missing else []),
        *(["Warnings:\n\n" + "\n".join(warnings)] if warnings else []),
    ]


def _about(result: Result) -> str:
    """What was measured, by what."""
    tool = f"{result.tool.name} {result.tool.version}"
    items = [*sentences.environment(result), sentences.rank_phrase(result), tool]
    return " · ".join([code(sentences.identity(result)), *(prose(item) for item in items if item)])


def _fitting(sections: list[_Section], room: int) -> list[str]:
    """The sections, as much of them as the room holds, and a line that says so where that is not all."""
    out, cut = [], False
    for section in sections:
        kept = []
        left = room - len(folded(section.summary, "")) - 2
        for part in section.parts:
            if len(part) + 2 > left:
                cut = True
                continue
            left -= len(part) + 2
            kept.append(part)
        if kept:
            out.append(folded(section.summary, "\n\n".join(kept)))
            room = left
    return [*out, _CUT] if cut else out
