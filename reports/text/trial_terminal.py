"""Changes that were tried, as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.reports.text.terminal_lines import MAX_WIDTH, MIN_WIDTH, Terminal, pad, width_of
from traceopt.reports.words import safe_text, trial_words
from traceopt.result.trial import TriedChange

_COLORS = {"keep": "green", "slower": "red", "fails": "red", "trains_differently": "yellow", "unclear": "yellow"}
HEAD = ("change", "verdict", "predicted", "measured", "losses", "peak memory")
FIRST = 4  # columns of the first line on a narrow terminal
OUTPUT_LINES = 4  # shown of a script that failed
NAME_COLUMNS, LEAST_NAME_COLUMNS = 24, 6


def render_trial(tried: Sequence[TriedChange], *, width: int, color: bool, unicode: bool) -> str:
    terminal = Terminal(min(max(width, MIN_WIDTH), MAX_WIDTH), color, unicode)
    rows = [safe_text.cleaned(row) for row in tried]
    return safe_text.without_commands("\n".join(trial_lines(rows, terminal)) + "\n")


def trial_lines(tried: Sequence[TriedChange], terminal: Terminal) -> list[str]:
    """The table and its notes. On a narrow terminal, losses and memory get a line of their own."""
    if not tried:
        return []
    rows = [[terminal.plain(cell) for cell in _cells(row)] for row in tried]
    cells = [list(HEAD), *rows]
    widths = [max(width_of(row[column]) for row in cells) for column in range(len(HEAD))]
    widths[0] = min(widths[0], NAME_COLUMNS)
    if sum(widths) + 2 * len(widths) > terminal.width:
        widths = widths[:FIRST]
        widths[0] = max(LEAST_NAME_COLUMNS, min(widths[0], terminal.width - 2 * FIRST - sum(widths[1:])))
    lines = [terminal.style(f"{trial_words.HEADING}:", bold=True)]
    lines.append(terminal.style(_line(list(HEAD), widths, terminal), dim=True))
    for row, values in zip(tried, rows, strict=True):
        line = _line(values, widths, terminal)
        color = _COLORS.get(row.verdict)
        lines.append(line.replace(values[1], terminal.style(values[1], fg=color, bold=row.verdict == "keep"), 1))
        if len(widths) < len(HEAD) and row.before_us is not None:
            rest = "; ".join(f"{name} {value}" for name, value in zip(HEAD[FIRST:], values[FIRST:], strict=True))
            lines.append(terminal.style(terminal.fit(f"      {rest}", terminal.width), dim=True))
        lines += [terminal.fit(f"      | {line}", terminal.width) for line in row.output[-OUTPUT_LINES:]]
    for note in trial_words.notes(tried):
        lines += [terminal.style(line, dim=True) for line in terminal.wrap(note, first="  ", indent="  ")]
    return lines


def _cells(row: TriedChange) -> tuple[str, ...]:
    return (
        row.name,
        trial_words.verdict(row),
        trial_words.predicted(row),
        trial_words.measured(row),
        trial_words.losses(row),
        trial_words.memory(row),
    )


def _line(values: Sequence[str], widths: Sequence[int], terminal: Terminal) -> str:
    name = terminal.fit(values[0], widths[0])
    padded = map(pad, [name, *values[1 : len(widths)]], widths)
    return terminal.fit("  " + "  ".join(padded).rstrip(), terminal.width)
