"""Changes that were tried, as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.reports.text.terminal_lines import MAX_WIDTH, MIN_WIDTH, Terminal, pad, width_of
from traceopt.reports.words import safe_text
from traceopt.reports.words.comparing import trial_words
from traceopt.result.trial import TriedChange

_COLORS = {"keep": "green", "slower": "red", "fails": "red", "trains_differently": "yellow", "unclear": "yellow"}
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
    table = trial_words.trial_table(tried)
    head = [column.label.lower() for column in table.columns]
    rows = [[terminal.plain(cell.text or "–") for cell in row.cells] for row in table.rows]
    widths = [max(map(width_of, column)) for column in zip(head, *rows, strict=True)]
    widths[0] = min(widths[0], NAME_COLUMNS)
    if sum(widths) + 2 * len(widths) > terminal.width:
        widths = widths[:FIRST]
        widths[0] = max(LEAST_NAME_COLUMNS, min(widths[0], terminal.width - 2 * len(widths) - sum(widths[1:])))
    lines = [terminal.style(f"{trial_words.HEADING}:", bold=True)]
    lines.append(terminal.style(_line(head, widths, terminal), dim=True))
    for row, values in zip(tried, rows, strict=True):
        line = _line(values, widths, terminal)
        color = _COLORS.get(row.verdict)
        lines.append(line.replace(values[1], terminal.style(values[1], fg=color, bold=row.verdict == "keep"), 1))
        if len(widths) < len(head) and row.before_us is not None:
            rest = "; ".join(f"{name} {value}" for name, value in zip(head[FIRST:], values[FIRST:], strict=True))
            lines.append(terminal.style(terminal.fit(f"      {rest}", terminal.width), dim=True))
        lines += [terminal.fit(f"      | {line}", terminal.width) for line in row.output[-OUTPUT_LINES:]]
    for note in trial_words.notes(tried):
        lines += [terminal.style(line, dim=True) for line in terminal.wrap(note, first="  ", indent="  ")]
    return lines


def _line(values: Sequence[str], widths: Sequence[int], terminal: Terminal) -> str:
    name = terminal.fit(values[0], widths[0])
    padded = map(pad, [name, *values[1 : len(widths)]], widths)
    return terminal.fit("  " + "  ".join(padded).rstrip(), terminal.width)
