"""A comparison as a terminal shows it, and the lines of gates, which are the last."""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.reports.text.terminal_lines import MAX_WIDTH, MIN_WIDTH, Paper, pad
from traceopt.reports.words import comparison_words, quantities
from traceopt.result.comparison import Comparison, FindingChange, GateOutcome, RowChange

ROWS = 8  # kernels and operators shown of each
FINDINGS = 10  # shown of each status
NOTES = 6
NUMBERS = 3 * 12  # columns of base, head and change

_GATE_WORDS = {
    ("passed", "fail"): ("ok", "green"),
    ("passed", "warn"): ("ok", "green"),
    ("failed", "fail"): ("FAIL", "red"),
    ("failed", "warn"): ("WARN", "yellow"),
    ("not_checked", "fail"): ("NOT CHECKED", "red"),
    ("not_checked", "warn"): ("NOT CHECKED", "yellow"),
}
_ROW_COLOURS = {"new": "yellow", "gone": "cyan", "slower": "red", "faster": "green"}
_FINDING_COLOURS = {"new": "red", "fixed": "green", "kept": None, "unknown": "yellow"}


def render_comparison(comparison: Comparison, *, width: int, color: bool, unicode: bool) -> str:
    """Lines of at most `width` columns (60 to 110). `unicode` False keeps to ASCII."""
    shown = quantities.cleaned(comparison)
    paper = Paper(min(max(width, MIN_WIDTH), MAX_WIDTH), color, unicode)
    blocks = [
        _headline(shown, paper),
        _notes(shown, paper),
        _parts(shown, paper),
        _rows("kernel", shown.kernels, paper),
        _rows("operator", shown.ops, paper),
        _findings(shown, paper),
        _settings(shown, paper),
        _gates(shown.gates, paper),
    ]
    return quantities.without_commands("\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n")


def render_gates(outcomes: Sequence[GateOutcome], *, width: int, color: bool, unicode: bool) -> str:
    """A line a gate; empty without any."""
    paper = Paper(max(width, MIN_WIDTH), color, unicode)
    return quantities.without_commands(
        "".join(f"{line}\n" for line in _gates([quantities.cleaned(outcome) for outcome in outcomes], paper))
    )


def render_against_baseline(comparison: Comparison, *, width: int, color: bool, unicode: bool) -> str:
    """A line or two below the summary of an analysis: the step and the findings beside those of the baseline."""
    shown = quantities.cleaned(comparison)
    paper = Paper(min(max(width, MIN_WIDTH), MAX_WIDTH), color, unicode)
    lines = paper.wrap(f"Against {comparison_words.side_name(shown.base)}: {shown.verdict}", indent="  ")
    lines += paper.wrap(f"Findings: {comparison_words.findings_line(shown.findings)}.", first="  ", indent="  ")
    for status in ("new", "fixed"):
        lines += [_finding(finding, paper) for finding in comparison_words.of_status(shown.findings, status)[:FINDINGS]]
    return quantities.without_commands("".join(f"{line}\n" for line in lines))


def _headline(comparison: Comparison, paper: Paper) -> list[str]:
    name = "traceopt"
    sides = " → ".join(
        f"{comparison_words.side_name(s)}, {comparison_words.steps_phrase(s)}"
        for s in (comparison.base, comparison.head)
    )
    room = paper.width - len(name) - 2
    about = " · ".join([sides, *comparison_words.environment(comparison)])
    lines = [paper.style(name, bold=True) + "  " + paper.fit(about if len(about) <= room else sides, room), ""]
    lines += [paper.style(line, bold=True) for line in _sentences(comparison.verdict, paper)]
    share = comparison_words.interval(comparison.step)
    told = comparison_words.basis(comparison)
    if share is not None:
        told = f"{share}. {told}"
    metrics = comparison_words.metrics_line(comparison)
    lines += paper.wrap(told) if told and told not in comparison.verdict else []
    return lines + (paper.wrap(f"{metrics}.") if metrics else [])


def _sentences(verdict: str, paper: Paper) -> list[str]:
    """A line a sentence where they do not fit one."""
    if len(verdict) <= paper.width:
        return [paper.plain(verdict)]
    return [line for sentence in quantities.sentences(verdict) for line in paper.wrap(sentence)]


def _parts(comparison: Comparison, paper: Paper) -> list[str]:
    room = paper.width - NUMBERS - 2
    lines = []
    for part in comparison_words.shown_parts(comparison):
        noise = "  within noise" if part.beyond_noise is False else ""
        label = pad(paper.fit(part.label + noise, room), room)
        times = f"{_cell(quantities.ms(part.base_us))}{_cell(quantities.ms(part.head_us))}"
        lines.append(paper.plain(f"  {label}{times}{_cell(quantities.signed_ms_number(part.change_us) + ' ms')}"))
    return [_heading("part of the mean step", room, paper), *lines] if lines else []


def _rows(noun: str, rows: Sequence[RowChange], paper: Paper) -> list[str]:
    if not rows:
        return []
    room = paper.width - NUMBERS - 2
    lines = [_heading(f"{noun}s that changed", room, paper)]
    for row in rows[:ROWS]:
        word = comparison_words.ROW_WORDS[row.status]
        calls = comparison_words.calls(row)
        name = paper.fit(
            comparison_words.row_name(row, of_kernels=noun == "kernel"), room - 8 - (len(calls) + 2 if calls else 0)
        )
        label = f"{paper.style(pad(word, 8), fg=_ROW_COLOURS[word])}{name}{f'  {calls}' if calls else ''}"
        used = 8 + len(name) + (len(calls) + 2 if calls else 0)
        times = "".join(_cell("–" if us is None else quantities.ms(us)) for us in (row.base_us, row.head_us))
        numbers = paper.plain(times + _cell(quantities.signed_ms_number(row.change_us) + " ms"))
        lines.append(f"  {paper.plain(label)}{' ' * max(0, room - used)}{numbers}")
    if len(rows) > ROWS:
        lines.append(f"  and {quantities.counted(len(rows) - ROWS, f'more {noun}')}")
    return lines


def _findings(comparison: Comparison, paper: Paper) -> list[str]:
    lines = [f"Findings: {comparison_words.findings_line(comparison.findings)}."]
    for status in ("new", "unknown", "fixed"):
        found = comparison_words.of_status(comparison.findings, status)
        lines += [_finding(finding, paper) for finding in found[:FINDINGS]]
        if len(found) > FINDINGS:
            lines.append(f"  and {len(found) - FINDINGS} more {comparison_words.STATUS_WORDS[status].lower()}")
    return lines


def _finding(finding: FindingChange, paper: Paper) -> str:
    word = "not comparable" if finding.status == "unknown" else finding.status
    impact = finding.head_impact or finding.base_impact or ""
    saved = comparison_words.saving(finding)
    tail = "  ".join(item for item in (impact, saved, finding.place or "") if item)
    tail = paper.fit(tail, paper.width // 2)
    room = paper.width - 2 - 6 - len(tail) - 2
    body = paper.fit(f"{finding.code} {finding.title}", max(room - max(0, len(word) - 5), 10))
    start = paper.style(pad(word, 5), fg=_FINDING_COLOURS[finding.status])
    return f"  {start} {pad(body, max(room - max(0, len(word) - 5), 10))}  {tail}".rstrip()


def _settings(comparison: Comparison, paper: Paper) -> list[str]:
    if not comparison.settings:
        return []
    lines = ["Settings that differ:"]
    for setting in comparison.settings:
        values = " → ".join(value or quantities.NOT_RECORDED for value in (setting.base, setting.head))
        lines.append(paper.fit(f"  {setting.name}: {values}", paper.width))
    return lines


def _notes(comparison: Comparison, paper: Paper) -> list[str]:
    lines = [line for note in comparison.notes[:NOTES] for line in paper.wrap(note, first="Note: ", indent="  ")]
    more = len(comparison.notes) - NOTES
    return [*lines, f"  and {quantities.counted(more, 'more note')}"] if more > 0 else lines


def _gates(outcomes: Sequence[GateOutcome], paper: Paper) -> list[str]:
    lines = []
    for outcome in outcomes:
        word, colour = _GATE_WORDS[outcome.status, outcome.level]
        told = paper.plain(comparison_words.gate_line(outcome))
        lines.append(f"{paper.style(pad(word, 4), fg=colour, bold=word != 'ok')}  {told}")
    return lines


def _heading(label: str, room: int, paper: Paper) -> str:
    return paper.style(f"  {label:<{room}}{_cell('base')}{_cell('head')}{_cell('change')}", dim=True)


def _cell(value: str) -> str:
    return f"{value:>12}"
