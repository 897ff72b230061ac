"""The pull-request comment: what limits the step, what changed and the best fixes; the rest is folded.

The first line is a hidden tag, so that a later run finds the comment and replaces it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from traceopt.reports.text.markdown_escaping import code, code_block, folded, prose, table
from traceopt.reports.words import (
    comparison_words,
    headline,
    names,
    plan_numbers,
    safe_text,
    sentences,
    step_words,
    trial_words,
)
from traceopt.reports.words.companions.lines import companion_lines
from traceopt.reports.words.display import for_display
from traceopt.result import quantities
from traceopt.result.comparison import Comparison, GateOutcome
from traceopt.result.document import Result

LIMIT = 60_000  # characters; GitHub refuses comments over 65,536
LABEL = "traceopt"
FIXES = 5
NOTES = 5  # quality notes shown, and warnings
PLACES = 8
TRIED = 12
FINDINGS = 20  # of each status
UNCHANGED = "<!-- nothing changed -->"  # such a comment only replaces an earlier one

_CHANGED: tuple[comparison_words.Group, ...] = ("new", "fixed", "only_head", "only_base")
_GATES = {
    ("failed", "fail"): "Failed",
    ("failed", "warn"): "Warning",
    ("not_checked", "fail"): "Failed, not checked",
    ("not_checked", "warn"): "Not checked",
}
_CUT = "Cut to fit into a comment; the report has the rest."


class _Section(Struct, frozen=True):
    """A section that opens with a click. If not all parts fit, the last ones are left out."""

    summary: str
    parts: list[str]


def render_markdown(
    result: Result, *, label: str = LABEL, comparison: Comparison | None = None, gates: Sequence[GateOutcome] = ()
) -> str:
    """The comment, in at most `LIMIT` characters. `label` tells the comments of several jobs apart.

    `comparison` compares this result with a baseline.
    """
    document = for_display(result)
    against = None if comparison is None else safe_text.cleaned(comparison)
    cards = sentences.cards(document)
    first, rest = safe_text.first_sentence(sentences.verdict(document))
    priced = [card for card in cards if card.number is not None]
    head = [
        "\n".join([tag(label), *([UNCHANGED] if _unchanged(against, gates) else [])]),
        f"### traceopt: {prose(first)}",
        *([prose(rest)] if rest else []),
        *_quality(document),
        *_lead(document, against),
        *_gates(gates),
        *_fixes(document, priced[:FIXES], len(cards)),
        *(prose(line) for line in companion_lines(document)),
        *_tried(document),
    ]
    sections = [
        _Section("What changed", _changes(against)),
        _Section("What to change", [_advice(card, result) for card in priced[:FIXES]]),
        _Section("Where the time goes", _breakdown(document)),
        _Section("Also noted", _noted([card for card in cards if card not in priced[:FIXES]])),
        _Section("What was checked", _checks(document)),
    ]
    foot = _about(document)
    room = LIMIT - sum(len(block) + 2 for block in [*head, _CUT, foot])
    return "\n\n".join([*head, *_fitting(sections, room), foot]) + "\n"


def tag(label: str) -> str:
    """The hidden line that identifies the comment."""
    return f"<!-- traceopt:{re.sub(r'[^A-Za-z0-9_.]+', '-', label)[:80]} -->"


def _unchanged(against: Comparison | None, gates: Iterable[GateOutcome]) -> bool:
    if against is None or against.step.verdict != "within_noise":
        return False
    same = all(finding.status == "kept" for finding in against.findings)
    return same and all(gate.status == "passed" for gate in gates)


def _quality(result: Result) -> list[str]:
    """The caveats about the numbers, as a quotation."""
    heading = sentences.quality_heading(result)
    if heading is None:
        return []
    notes = result.quality.notes
    lines = [f"{heading}:"]
    for note in notes[:NOTES]:
        text = note.text if result.quality.verdict == "unusable" else safe_text.first_sentence(note.text)[0]
        lines.append(f"- {prose(text)} ({prose(note.code)})")
    if len(notes) > NOTES:
        lines.append(f"- and {quantities.counted(len(notes) - NOTES, 'more note')} in the report")
    return ["\n".join(f"> {line}" for line in lines)]


def _lead(result: Result, against: Comparison | None) -> list[str]:
    """The one bold line: the change if there is a baseline, else what the fixes save."""
    lead = prose("".join(headline.lead(result)))
    if against is None:
        return [f"**{lead}**"] if lead else []
    share = comparison_words.interval(against.step)
    details = [
        f"Against the baseline: {share}." if share is not None else "",
        f"Findings: {comparison_words.findings_line(against.findings)}.",
        lead,
    ]
    unusual = comparison_words.unusual_steps(against)
    return [
        f"**{prose(against.verdict)}**",
        *([prose(unusual)] if unusual else []),
        " ".join(item for item in details if item),
    ]


def _gates(outcomes: Iterable[GateOutcome]) -> list[str]:
    """The gates that have not passed."""
    lines = [
        f"- {_GATES[outcome.status, outcome.level]}: {prose(comparison_words.gate_line(outcome))}"
        for outcome in outcomes
        if outcome.status != "passed"
    ]
    return ["\n".join(lines)] if lines else []


def _fixes(result: Result, cards: list[sentences.Card], findings: int) -> list[str]:
    if not cards:
        return []
    rows = []
    for card in cards:
        place = sentences.place(card.finding)
        notes = [prose(note) for note in (card.finding.code, sentences.needs(card)) if note]
        rows.append([
            str(card.number),
            f"{prose(sentences.title(card, result))} ({', '.join(notes)})",
            *_savings(card, result),
            card.finding.confidence.capitalize(),
            code(names.short_path(place)) if place else "–",
        ])  # fmt: skip
    below = []
    if sum(card.row is not None for card in cards) > 1:
        below.append("Each saving counts on the fixes above it, so they add up.")
    if findings > len(cards):
        below.append(f"{quantities.counted(findings - len(cards), 'more finding')} below.")
    fixes = table(
        [
            "",
            "Fix",
            "Saves (in this order)",
            "Alone",
            f"{step_words.step_noun(result).capitalize()} after",
            "Confidence",
            "Where",
        ],
        "rlrrrll",
        rows,
    )
    return [fixes, " ".join(below)] if below else [fixes]


def _tried(result: Result) -> list[str]:
    """The changes that were made and measured."""
    if not result.tried:
        return []
    rows = [
        [
            prose(trial_words.name(row)),
            trial_words.verdict(row),
            trial_words.predicted(row),
            trial_words.measured(row),
            trial_words.losses(row),
            trial_words.memory(row),
        ]
        for row in result.tried[:TRIED]
    ]
    head = ["Change", "Verdict", "Predicted", "Measured", "Losses", "Peak memory"]
    notes = [f"- {prose(note)}" for note in trial_words.notes(result.tried[:TRIED])]
    return [f"#### {trial_words.HEADING}", table(head, "llrlll", rows), *(["\n".join(notes)] if notes else [])]


def _savings(card: sentences.Card, result: Result) -> tuple[str, str, str]:
    """What a fix saves in the plan and alone, and the step after it. Outside the plan it only saves alone."""
    if card.row is not None:
        numbers = plan_numbers.row_numbers(card.row, result)
        return numbers.saves, numbers.alone, numbers.step_after
    saving = card.finding.saving
    return (
        "–",
        "–" if saving is None else quantities.estimated(saving.est_us),
        "–",
    )


def _changes(against: Comparison | None) -> list[str]:
    """The other differences from the baseline: metrics, and findings by name."""
    if against is None:
        return []
    metrics = comparison_words.metrics_line(against)
    lines = []
    for group in _CHANGED:
        for finding in comparison_words.of_group(against.findings, group)[:FINDINGS]:
            where = f", {code(names.short_path(finding.place))}" if finding.place else ""
            lines.append(
                f"- {comparison_words.GROUP_WORDS[group]}: {prose(finding.title)} ({prose(finding.code)}){where}"
            )
    lines += [f"- {prose(text)}" for text in comparison_words.unestimated_lines(against)]
    return [block for block in (prose(f"{metrics}.") if metrics else "", "\n".join(lines)) if block]


def _advice(card: sentences.Card, result: Result) -> str:
    """Why a fix pays off, and how to make it."""
    finding, saving = card.finding, card.finding.saving
    blocks = [f"#### {card.number}. {prose(finding.title)} ({prose(finding.code)})", prose(finding.why)]
    if saving is not None:
        alone = f"{quantities.estimate_range(saving.low_us, saving.high_us)} {step_words.of_each_step(result)} alone"
        blocks.append(f"Saves {alone}. {prose(saving.basis)}")
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
    firsts = {part.busy: part.name for part in reversed(parts)}  # the side is named in its first row
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
    blocks = [scope, table(["", "Part", f"ms{step_words.per_step(result)}", "Share"], "llrr", rows)]
    return [*blocks, "\n".join(measured)] if measured else blocks


def _noted(cards: Iterable[sentences.Card]) -> list[str]:
    lines = []
    for card in cards:
        finding, saving, place = card.finding, card.finding.saving, sentences.place(card.finding)
        saved = "" if saving is None else f", saves {quantities.estimated(saving.est_us)} alone"
        where = f", {code(names.short_path(place))}" if place else ""
        lines.append(f"- {prose(finding.title)} ({prose(finding.code)}){saved}{where}")
    return ["\n".join(lines)] if lines else []


def _checks(result: Result) -> list[str]:
    if not result.checks:
        return []
    missing = [f"- {prose(reason)} ({prose(', '.join(codes))})" for reason, codes in sentences.not_checked(result)]
    warnings = [f"- {prose(warning)}" for warning in result.warnings[:NOTES]]
    return [
        sentences.checks_line(result),
        *(["Not checked:\n\n" + "\n".join(missing)] if missing else []),
        *(["Warnings:\n\n" + "\n".join(warnings)] if warnings else []),
    ]


def _about(result: Result) -> str:
    """What was measured, and by which version."""
    tool = f"{result.tool.name} {result.tool.version}"
    items = [*sentences.environment(result), sentences.rank_phrase(result), tool]
    return " · ".join([code(sentences.identity(result)), *(prose(item) for item in items if item)])


def _fitting(sections: list[_Section], room: int) -> list[str]:
    """The sections, as far as they fit into `room` characters, and a line that says so if something was cut."""
    out, cut = [], False
    for section in sections:
        parts = []
        left = room - len(folded(section.summary, "")) - 2
        for part in section.parts:
            if len(part) + 2 > left:
                cut = True
                continue
            left -= len(part) + 2
            parts.append(part)
        if parts:
            out.append(folded(section.summary, "\n\n".join(parts)))
            room = left
    return [*out, _CUT] if cut else out
