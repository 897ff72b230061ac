"""The pull-request comment, to be read in ten seconds: what limits the step, what changed, the best fixes with their
lines and savings, and the first patch. The rest is folded, and small numbers are left to the report.

The first line is a hidden tag, so that a later run finds the comment and replaces it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from traceopt.reports.text import step_bars
from traceopt.reports.text.markdown_escaping import code, code_block, columns_table, folded, prose, table
from traceopt.reports.words import names, rank_words, run_words, safe_text, step_words
from traceopt.reports.words.companions.sections import companion_lines
from traceopt.reports.words.comparing import comparison_words, trial_words
from traceopt.reports.words.display import for_display
from traceopt.reports.words.fixes import fix_cards, headline, plan_numbers
from traceopt.reports.words.part_styles import small_parts_together
from traceopt.result.comparison import Comparison, GateOutcome
from traceopt.result.document import Result
from traceopt.result.finding import Saving
from traceopt.result.words import quantities

LIMIT = 60_000  # characters; GitHub refuses comments over 65,536
LABEL = "traceopt"
FIXES = 5  # in the table without a plan, and with their reasons
PLANNED = 8  # rows of the plan
NOTES = 3  # quality notes shown, and warnings
PATCH_LINES = 16  # a longer patch is not shown before the details are opened
SMALL_SHARE = 0.01  # smaller parts of the step share one row
PLACES = 8
REASONED = 2  # findings without an estimate: so many have their reasons and fixes, if there are no others
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
    cards = fix_cards.cards(document)
    first, rest = safe_text.first_sentence(run_words.verdict(document))
    shown, minor = _shown(document), fix_cards.groups(document).minor
    patched = next((card for card in shown if _is_short(card.finding.fix.patch)), None)
    advised = [card for card in cards if card.number is not None and card not in minor][: max(FIXES, len(shown))]
    reasoned = [] if advised or len(cards) > REASONED else [card for card in cards if card not in minor]
    head = [
        "\n".join([tag(label), *([UNCHANGED] if _unchanged(against, gates) else [])]),
        f"### traceopt: {prose(first)}",
        *([prose(rest)] if rest else []),
        *_quality(document),
        *_lead(document, against),
        *([prose(unusual)] if (unusual := step_words.unusual_steps(document)) else []),
        *([prose(slow)] if (slow := rank_words.slow_ranks(document)) else []),
        *_gates(gates),
        *([bars] if (bars := step_bars.now_and_after(document)) else []),
        *_fixes(document, shown, len(cards)),
        *(_patch(patched) if patched is not None else []),
        *(_advice(card, document) for card in reasoned),
        *(prose(line) for line in companion_lines(document)),
        *_tried(document),
    ]
    sections = [
        _Section("What changed", _changes(against)),
        _Section("Why, and how to change it", [_advice(card, result, card != patched) for card in advised]),
        _Section("Where the time goes", _breakdown(document)),
        _Section("More findings", _noted([card for card in cards if card not in [*advised, *reasoned]], document)),
        _Section("Warnings", _warnings(document)),
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
    heading = run_words.quality_heading(result)
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
    share = comparison_words.change_line(against)
    details = [
        f"Against the baseline: {share[0].lower()}{share[1:]}." if share is not None else "",
        f"Findings: {comparison_words.findings_line(against)}.",
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


def _shown(result: Result) -> list[fix_cards.Card]:
    """The fixes of the table: the plan, and what the comparison of ranks puts above it. Without a plan, all that save
    something.
    """
    groups = fix_cards.groups(result)
    return [*groups.above, *groups.plan][:PLANNED] if groups.plan else groups.rest[:FIXES]


def _fixes(result: Result, cards: list[fix_cards.Card], findings: int) -> list[str]:
    """The table of fixes. Those outside the plan have what they save alone, and no step after them."""
    if not cards:
        return []
    planned = any(card.row is not None for card in cards)
    placed = any(fix_cards.place(card.finding) for card in cards)
    rows = []
    for card in cards:
        place = fix_cards.place(card.finding)
        notes = [prose(note) for note in (card.finding.code, fix_cards.needs(card)) if note]
        saves, step_after = _savings(card, result)
        rows.append([
            str(card.number),
            f"{prose(fix_cards.title(card, result))} ({', '.join(notes)})",
            *([code(names.short_path(place)) if place else "–"] if placed else []),
            saves,
            *([step_after] if planned else []),
            card.finding.confidence.capitalize(),
        ])  # fmt: skip
    has_row = {card.anchor for card in cards}
    left_out = [card for card in fix_cards.groups(result).plan if card.anchor not in has_row]
    if left_out and planned:
        more_planned, step_after = f"{len(left_out)} more of the plan", _savings(left_out[-1], result)[1]
        rows.append(["", more_planned, *([""] if placed else []), "", step_after, ""])
    several = sum(card.row is not None for card in cards) > 1
    above = f"{fix_cards.PLAN_ORDER} {fix_cards.HOW_SURE}" if several else fix_cards.HOW_SURE
    more = findings - len(cards)
    below = [f"{quantities.counted(more, 'more finding')} below."] if more > 0 else []
    after = [f"{step_words.step_noun(result).capitalize()} after"] if planned else []
    where = ["Where"] if placed else []
    head = ["", "Fix", *where, "Saves" if planned else "Saves alone", *after, "Confidence"]
    return [above, table(head, f"rl{'l' * len(where)}r{'r' * len(after)}l", rows), *below]


def _is_short(patch: str | None) -> bool:
    return patch is not None and 0 < len(patch.strip().splitlines()) <= PATCH_LINES


def _patch(card: fix_cards.Card) -> list[str]:
    """The first short patch, which reviewers see without a click."""
    return [f"Patch of fix {card.number}:", code_block(card.finding.fix.patch or "", "diff")]


def _tried(result: Result) -> list[str]:
    """The changes that were made and measured."""
    if not result.tried:
        return []
    tried = result.tried[:TRIED]
    notes = [f"- {prose(note)}" for note in trial_words.notes(tried)]
    return [
        f"#### {trial_words.HEADING}",
        columns_table(trial_words.trial_table(tried)),
        *(["\n".join(notes)] if notes else []),
    ]


def _savings(card: fix_cards.Card, result: Result) -> tuple[str, str]:
    """What a fix saves, in the plan if it is in the plan, and the step after it."""
    if card.row is not None:
        numbers = plan_numbers.row_numbers(card.row, result)
        return numbers.saves, numbers.step_after
    saving = card.finding.saving
    return "–" if saving is None else quantities.estimated(saving.est_us), "–"


def _changes(against: Comparison | None) -> list[str]:
    """The other differences from the baseline: metrics, and findings by name."""
    if against is None:
        return []
    metrics = comparison_words.metrics_line(against)
    lines = []
    for group in _CHANGED:
        for finding in comparison_words.of_group(against, group)[:FINDINGS]:
            where = f", {code(names.short_path(finding.place))}" if finding.place else ""
            lines.append(
                f"- {comparison_words.GROUP_WORDS[group]}: {prose(finding.title)} ({prose(finding.code)}){where}"
            )
    return [block for block in (prose(f"{metrics}.") if metrics else "", "\n".join(lines)) if block]


def _advice(card: fix_cards.Card, result: Result, with_patch: bool = True) -> str:
    """Why a fix pays off, and how to make it."""
    finding, saving = card.finding, card.finding.saving
    number = "" if card.number is None else f"{card.number}. "
    blocks = [f"#### {number}{prose(fix_cards.name(finding, result))} ({prose(finding.code)})", prose(finding.why)]
    if saving is not None:
        ranges = f"{_ranges(card, saving, result)} {plan_numbers.beyond_measured(saving)}".rstrip()
        blocks.append(f"{ranges} {prose(saving.basis)}")
    blocks.append(f"{prose(finding.fix.text)} Effort: {prose(finding.effort)}. Risk: {prose(finding.risk_words)}.")
    if finding.fix.patch:
        blocks.append(code_block(finding.fix.patch, "diff") if with_patch else "The patch is above.")
    elif finding.fix.code:
        blocks.append(code_block(finding.fix.code, "python"))
    places = [code(place.shown) for place in finding.locations[:PLACES]]
    if len(places) > 1:
        blocks.append(f"Places: {', '.join(places)}{' and more' if len(finding.locations) > PLACES else ''}")
    return "\n\n".join(blocks)


def _ranges(card: fix_cards.Card, saving: Saving, result: Result) -> str:
    """What a fix saves at least and at most: in the plan, and alone if that differs, with the reason."""
    per_step = step_words.of_each_step(result)
    alone = quantities.estimate_range(saving.low_us, saving.high_us)
    if card.row is None:
        return f"Saves {alone} {per_step} alone."
    planned = plan_numbers.row_range(card.row, result)
    reason = plan_numbers.other_alone(card.row, result)
    if not reason or planned == alone:
        return f"Saves {planned} {per_step}."
    return f"Saves {planned} {per_step} in the plan{reason}, and {alone} alone."


def _breakdown(result: Result) -> list[str]:
    parts = small_parts_together([part for part in result.breakdown if part.us_per_step > 0], SMALL_SHARE)
    if not parts:
        return []
    words = step_words.sides(result)
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
    scope = prose(f"{step_words.scope(result)}{step_words.typical_step(result)}. Every millisecond is counted once.")
    gpus = "\n".join(f"- {prose(line)}" for line in run_words.gpus(result))
    parts_table = table(["", "Part", f"ms{step_words.per_step(result)}", "Share"], "llrr", rows)
    return [scope, parts_table, *([gpus] if gpus else [])]


def _noted(cards: Iterable[fix_cards.Card], result: Result) -> list[str]:
    lines = []
    for card in cards:
        finding, saving, place = card.finding, card.finding.saving, fix_cards.place(card.finding)
        alone = "in the plan" if card.row is not None else "alone"
        saved = "" if saving is None else f", saves {_savings(card, result)[0]} {alone}"
        where = f", {code(names.short_path(place))}" if place else ""
        why = f" ({prose(needs)})" if (needs := fix_cards.needs(card)) else ""
        lines.append(f"- {prose(fix_cards.title(card, result))} ({prose(finding.code)}){saved}{why}{where}")
    return ["\n".join(lines)] if lines else []


def _warnings(result: Result) -> list[str]:
    lines = [f"- {prose(warning)}" for warning in result.warnings[:NOTES]]
    return ["\n".join(lines)] if lines else []


def _about(result: Result) -> str:
    """What was measured, by which version, and how many rules looked at it."""
    tool = f"{result.tool.name} {result.tool.version}"
    torch = f"PyTorch {result.run.torch_version}" if result.run.torch_version else None
    ran = (
        run_words.throughput(result),
        run_words.cost(result),
        run_words.serving(result),
        rank_words.rank_phrase(result),
    )
    items = [run_words.device_phrase(result), torch, step_words.steps_phrase(result), *ran, tool]
    measured = " · ".join([f"Measured: {code(run_words.identity(result))}", *(prose(item) for item in items if item)])
    estimated = any(finding.saving is not None for finding in result.findings)
    checked = prose(run_words.checks_line(result)) if result.checks else ""
    rest = " ".join(line for line in ("Savings are estimates." if estimated else "", checked) if line)
    return f"{measured}. {rest}".rstrip() if rest else measured


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
