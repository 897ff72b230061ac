"""Changes that were tried, as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.reports.text.terminal_lines import MAX_WIDTH, MIN_WIDTH, Terminal, pad, width_of
from traceopt.reports.words import safe_text, trial_words
from traceopt.result.trial import TriedChange

_COLOURS = {"keep": "green", "slower": "red", "fails": "red", "trains_differently": "yellow"}
OUTPUT_LINES = 4
NAME_COLUMNS = 24


def render_trial(tried: Sequence[TriedChange], *, width: int, color: bool, unicode: bool) -> str:
    terminal = Terminal(min(max(width, MIN_WIDTH), MAX_WIDTH), color, unicode)
    rows = [safe_text.cleaned(row) for row in tried]
    return safe_text.without_commands("\n".join(trial_lines(rows, terminal)) + "\n")


def trial_lines(tried: Sequence[TriedChange], terminal: Terminal) -> list[str]:
    """The table and its notes; a narrow terminal gets two lines for each change."""
    if not tried:
        return []
    heading = ("change", "verdict", "predicted", "measured", "losses", "peak memory")
    cells = [
        (
            terminal.fit(row.name, NAME_COLUMNS),
            trial_words.verdict(row),
            terminal.plain(trial_words.predicted(row)),
            terminal.plain(trial_words.measured(row)),
            trial_words.losses(row),
            terminal.plain(trial_words.memory(row)),
        )
        for row in tried
    ]
    widths = [max(width_of(values[column]) for values in (heading, *cells)) for column in range(len(heading))]
    lines = [terminal.style(f"{trial_words.HEADING}:", bold=True)]
    together = sum(widths) + 2 * len(widths) <= terminal.width
    first, second = (heading, ()) if together else (heading[:4], heading[4:])
    lines.append(terminal.style("  " + "  ".join(map(pad, first, widths)).rstrip(), dim=True))
    for row, values in zip(tried, cells, strict=True):
        padded = list(map(pad, values[: len(first)], widths))
        padded[1] = terminal.style(padded[1], fg=_COLOURS.get(row.verdict), bold=row.verdict == "keep")
        lines.append("  " + "  ".join(padded).rstrip())
        if second and row.before_us is not None:
            rest = "; ".join(f"{name} {value}" for name, value in zip(second, values[4:], strict=True))
            lines.append(terminal.style(f"      {rest}", dim=True))
        lines += [terminal.fit(f"      | {line}", terminal.width) for line in row.output[-OUTPUT_LINES:]]
    for note in trial_words.notes(tried):
        lines += [terminal.style(line, dim=True) for line in terminal.wrap(note, first="  ", indent="  ")]
    return lines
