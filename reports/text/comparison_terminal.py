"""A comparison for a terminal, and the lines of the gates, which come last."""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.analyzer.vocabulary.kernels.kernel_labels import short_name
from traceopt.reports.text.terminal_lines import MAX_WIDTH, MIN_WIDTH, Terminal, pad, width_of
from traceopt.reports.words import names, safe_text
from traceopt.reports.words.comparing import comparison_tables, comparison_words
from traceopt.result.comparison import Comparison, FindingChange, GateOutcome, RowChange, Side
from traceopt.result.words import quantities

ROWS = 5  # kernels shown, and operators
FINDINGS = 10  # shown of each group
NOTES = 6
WORD_COLUMNS = 8  # of what became of a row
NUMBERS = 3 * 12  # columns of base, head and change

_GATE_WORDS = {
    ("passed", "fail"): ("ok", "green"),
    ("passed", "warn"): ("ok", "green"),
    ("failed", "fail"): ("FAIL", "red"),
    ("failed", "warn"): ("WARN", "yellow"),
    ("not_checked", "fail"): ("NOT CHECKED", "red"),
    ("not_checked", "warn"): ("NOT CHECKED", "yellow"),
}
_ROW_COLORS = {
    "new": "yellow",
    "gone": "cyan",
    "slower": "red",
    "faster": "green",
    "more": "red",
    "fewer": "green",
    "outlier": None,
}
_FINDING_COLORS = {"new": "red", "only_head": None, "only_base": None, "fixed": "green", "small": None, "kept": None}


def render_comparison(comparison: Comparison, *, width: int, color: bool, unicode: bool) -> str:
    """Lines of at most `width` columns (60 to 110). Without `unicode` they are ASCII."""
    document = safe_text.cleaned(comparison)
    terminal = Terminal(min(max(width, MIN_WIDTH), MAX_WIDTH), color, unicode)
    blocks = [
        _headline(document, terminal),
        _notes(document, terminal),
        _parts(document, terminal),
        _explanation(document, terminal),
        _findings(document, terminal),
        _rows("kernel", document.kernels, terminal),
        _rows("operator", document.ops, terminal),
        _counts(document, terminal),
        _settings(document, terminal),
        _gates(document.gates, terminal),
    ]
    return safe_text.without_commands("\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n")


def render_gates(outcomes: Sequence[GateOutcome], *, width: int, color: bool, unicode: bool) -> str:
    """A line per gate; empty without gates."""
    terminal = Terminal(max(width, MIN_WIDTH), color, unicode)
    return safe_text.without_commands(
        "".join(f"{line}\n" for line in _gates([safe_text.cleaned(outcome) for outcome in outcomes], terminal))
    )


def render_against_baseline(comparison: Comparison, *, width: int, color: bool, unicode: bool) -> str:
    """A few lines below the summary of an analysis: the step and the findings against the baseline."""
    document = safe_text.cleaned(comparison)
    terminal = Terminal(min(max(width, MIN_WIDTH), MAX_WIDTH), color, unicode)
    verdict = " ".join(text for text in (document.verdict, comparison_words.unusual_steps(document)) if text)
    lines = terminal.wrap(f"Against {comparison_words.side_name(document.base)}: {verdict}", indent="  ")
    lines += terminal.wrap(f"Findings: {comparison_words.findings_line(document)}.", first="  ", indent="  ")
    groups: tuple[comparison_words.Group, ...] = ("new", "fixed")
    for group in groups:
        for finding in comparison_words.of_group(document, group)[:FINDINGS]:
            lines += _finding(finding, terminal)
    return safe_text.without_commands("".join(f"{line}\n" for line in lines))


def _headline(comparison: Comparison, terminal: Terminal) -> list[str]:
    name = "traceopt"
    first, *rest = _about(comparison, terminal, terminal.width - len(name) - 2)
    lines = [f"{terminal.style(name, bold=True)}  {first}", *(f"{' ' * len(name)}  {line}" for line in rest), ""]
    lines += [terminal.style(line, bold=True) for line in _sentences(comparison.verdict, terminal)]
    lines += terminal.wrap(comparison_words.unusual_steps(comparison))
    share, basis = comparison_words.change_line(comparison), comparison_words.basis(comparison)
    if share is not None:
        basis = f"{share}. {basis}"
    metrics = comparison_words.metrics_line(comparison)
    lines += terminal.wrap(basis) if basis else []
    lines += terminal.wrap(comparison_words.got_worse(comparison))
    return lines + (terminal.wrap(f"{metrics}.") if metrics else [])


def _about(comparison: Comparison, terminal: Terminal, columns: int) -> list[str]:
    """Both sides and what they share, on one line if they fit, else each on its own."""
    sides = [
        f"{terminal.plain(comparison_words.side_name(side))}, {comparison_words.steps_phrase(side)}"
        for side in (comparison.base, comparison.head)
    ]
    both = terminal.plain(" → ".join(sides))
    about = terminal.plain(" · ".join([both, *comparison_words.environment(comparison)]))
    if width_of(both) <= columns:
        return [about if width_of(about) <= columns else both]
    return [
        _side(name, side, terminal, columns) for name, side in (("BASE", comparison.base), ("HEAD", comparison.head))
    ]


def _side(word: str, side: Side, terminal: Terminal, columns: int) -> str:
    """ "HEAD branch-1.pt.trace.json.gz, 6 steps"; the name is cut if there is no room."""
    steps = f", {comparison_words.steps_phrase(side)}"
    return f"{word} {terminal.fit(comparison_words.side_name(side), columns - len(word) - 1 - len(steps))}{steps}"


def _sentences(verdict: str, terminal: Terminal) -> list[str]:
    """One sentence per line if they do not fit on one."""
    if len(verdict) <= terminal.width:
        return [terminal.plain(verdict)]
    return [line for sentence in safe_text.split_sentences(verdict) for line in terminal.wrap(sentence)]


def _parts(comparison: Comparison, terminal: Terminal) -> list[str]:
    room = terminal.width - NUMBERS - 2
    parts, rest = comparison_words.shown_parts(comparison), ""
    if comparison.comparable:
        parts, rest = comparison_words.apart_from_noise(parts)
    table = comparison_tables.changed_parts(comparison, parts)
    if not table.rows:
        return []
    _, *numbers = table.columns
    width = NUMBERS // len(numbers)
    heading = f"  {f'part of the {comparison_words.measured_noun(comparison)}':<{room}}"
    lines = [terminal.style(heading + "".join(f"{column.label.lower():>{width}}" for column in numbers), dim=True)]
    for row in table.rows:
        name, *values = row.cells
        beside = f"  {name.beside}" if name.beside else ""
        label = pad(terminal.fit(name.text, room - len(beside)) + beside, room)
        lines.append(terminal.plain(f"  {label}{''.join(f'{cell.text:>{width}}' for cell in values)}"))
    return lines + (terminal.wrap(rest, first="  ", indent="  ") if rest else [])


def _explanation(comparison: Comparison, terminal: Terminal) -> list[str]:
    lines = [line for text in comparison.explanation for line in terminal.wrap(text, first="  - ", indent="    ")]
    return ["What runs differently:", *lines] if lines else []


def _rows(noun: str, rows: Sequence[RowChange], terminal: Terminal) -> list[str]:
    if not rows:
        return []
    shown = rows[:ROWS]
    calls = [terminal.plain(comparison_words.calls(row)) for row in shown]
    heading = shown[0].counted if any(calls) else ""
    calls_width = max(map(len, [heading, *calls]))
    room = terminal.width - NUMBERS - 2
    name_width = room - WORD_COLUMNS - calls_width - 2
    full = [terminal.plain(short_name(row.name) if noun == "kernel" else row.name) for row in shown]
    title = f"the same by {noun}"
    lines = [_heading(f"{title}{heading:>{room - len(title)}}", room, terminal)]
    for row, name, counted in zip(shown, names.told_apart(full, name_width, terminal.mark), calls, strict=True):
        word = comparison_words.ROW_WORDS[row.status]
        label = terminal.style(f"{word:<{WORD_COLUMNS}}", fg=_ROW_COLORS[word])
        times = "".join(_cell("–" if us is None else quantities.ms_of_us(us)) for us in (row.base_us, row.head_us))
        numbers = terminal.plain(times + _cell(quantities.signed_time(row.change_us)))
        lines.append(f"  {label}{pad(name, name_width)}  {counted:>{calls_width}}{numbers}")
    if len(rows) > ROWS:
        lines.append(f"  and {quantities.counted(len(rows) - ROWS, f'more {noun}')}")
    return lines


def _counts(comparison: Comparison, terminal: Terminal) -> list[str]:
    table = comparison_tables.changed_counts(comparison, most=ROWS)
    if not table.rows:
        return []
    room = terminal.width - NUMBERS - 2
    lines = [_heading("what a step does", room, terminal)]
    for row in table.rows:
        name, *values = (terminal.plain(cell.text) for cell in row.cells)
        lines.append(f"  {pad(terminal.fit(name, room), room)}{''.join(map(_cell, values))}")
    more = table.total - len(table.rows)
    return [*lines, f"  and {quantities.counted(more, 'more count')}"] if more else lines


def _findings(comparison: Comparison, terminal: Terminal) -> list[str]:
    lines = [f"Findings: {comparison_words.findings_line(comparison)}."]
    for group, words in comparison_words.GROUP_WORDS.items():
        found = comparison_words.of_group(comparison, group) if group != "kept" else []
        lines += [line for finding in found[:FINDINGS] for line in _finding(finding, terminal)]
        if len(found) > FINDINGS:
            lines.append(f"  and {len(found) - FINDINGS} more {words[0].lower()}{words[1:]}")
    return lines


def _finding(finding: FindingChange, terminal: Terminal) -> list[str]:
    """What became of a finding, its code and title; below, its impact, what it saves, and its place in the code."""
    group = comparison_words.group_of(finding)
    word = pad(comparison_words.SHORT_GROUP_WORDS[group], 5)
    impact, saved = comparison_words.impact(finding).lower(), comparison_words.saving(finding)
    about = ", ".join(item for item in (impact, saved, names.short_path(finding.place or "")) if item)
    first, *rest = terminal.wrap(f"{finding.code} {finding.title}", first=f"  {word} ", indent=" " * 8)
    return [
        first.replace(word, terminal.style(word, fg=_FINDING_COLORS[group]), 1),
        *rest,
        *terminal.wrap(about, first=" " * 8, indent=" " * 8),
        *terminal.wrap(comparison_words.other_place(finding), first=" " * 8, indent=" " * 8),
    ]


def _settings(comparison: Comparison, terminal: Terminal) -> list[str]:
    if not comparison.settings:
        return []
    lines = ["Settings that differ:"]
    for setting in comparison.settings:
        values = " → ".join(value or quantities.NOT_RECORDED for value in (setting.base, setting.head))
        lines.append(terminal.fit(f"  {setting.name}: {values}", terminal.width))
    return lines


def _notes(comparison: Comparison, terminal: Terminal) -> list[str]:
    lines = [line for note in comparison.notes[:NOTES] for line in terminal.wrap(note, first="Note: ", indent="  ")]
    more = len(comparison.notes) - NOTES
    return [*lines, f"  and {quantities.counted(more, 'more note')}"] if more > 0 else lines


def _gates(outcomes: Sequence[GateOutcome], terminal: Terminal) -> list[str]:
    lines = []
    for outcome in outcomes:
        word, color = _GATE_WORDS[outcome.status, outcome.level]
        text = terminal.plain(comparison_words.gate_line(outcome))
        lines.append(f"{terminal.style(pad(word, 4), fg=color, bold=word != 'ok')}  {text}")
    return lines


def _heading(label: str, room: int, terminal: Terminal) -> str:
    return terminal.style(f"  {label:<{room}}{_cell('base')}{_cell('head')}{_cell('change')}", dim=True)


def _cell(value: str) -> str:
    return f"{value:>12}"
