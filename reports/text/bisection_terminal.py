"""A bisection for a terminal: the commit, those that were tested, and the comparison with the commit before it."""

from __future__ import annotations

from traceopt.reports.text.comparison_terminal import render_comparison
from traceopt.reports.text.terminal_lines import MAX_WIDTH, MIN_WIDTH, Terminal, pad
from traceopt.reports.words import safe_text
from traceopt.result.bisection import Bisection, TestedCommit
from traceopt.result.words.quantities import counted, signed_percent

LEFT = 5  # shown of the commits that may be the first
CHANGE_COLUMNS, LIKE_COLUMNS = 24, 9
_COLORS = {"good": "green", "bad": "red", "unknown": "yellow"}


def render_bisection(bisection: Bisection, *, width: int, color: bool, unicode: bool) -> str:
    document = safe_text.cleaned(bisection)
    terminal = Terminal(min(max(width, MIN_WIDTH), MAX_WIDTH), color, unicode)
    of_package = f" of {document.package}" if document.package is not None else ""
    between = f"{counted(document.commits, document.noun)}{of_package} between {document.good} and {document.bad}"
    lines = [f"{terminal.style('traceopt', bold=True)}  {terminal.plain(between)}", ""]
    lines += [terminal.style(line, bold=True) for line in terminal.wrap(document.verdict)]
    left = document.left[:LEFT] if document.tested and document.tested[0].like == "bad" else []
    if left:
        more = len(document.left) - len(left)
        names = ", ".join(map(document.short, left))
        lines += terminal.wrap(f"It may be {names}{f' and {more} more' if more else ''}.")
    lines += ["", *_tested(document, terminal)]
    text = safe_text.without_commands("\n".join(lines) + "\n")
    if bisection.comparison is None:
        return text
    return f"{text}\n{render_comparison(bisection.comparison, width=width, color=color, unicode=unicode)}"


def _tested(bisection: Bisection, terminal: Terminal) -> list[str]:
    if not bisection.tested:
        return []
    columns = max(len(bisection.short(one.commit)) for one in bisection.tested)
    heading = f"  {'tested':<{columns}}  {'step against GOOD':<{CHANGE_COLUMNS}}{'like':<{LIKE_COLUMNS}}"
    rows = [terminal.style(heading.rstrip(), dim=True)]
    for one in bisection.tested:
        word = "BAD" if one.like == "bad" else "GOOD" if one.like == "good" else one.like
        like = terminal.style(pad(word, LIKE_COLUMNS), fg=_COLORS[one.like])
        start = f"  {bisection.short(one.commit):<{columns}}  {pad(terminal.plain(_change(one)), CHANGE_COLUMNS)}"
        room = terminal.width - len(start) - LIKE_COLUMNS
        rows.append(f"{start}{like}{terminal.fit(one.reason or one.subject, room)}")
    return rows


def _change(one: TestedCommit) -> str:
    """ "+9.4% (+5.7% to +13%)"."""
    if one.change_share is None:
        return "not measured"
    share = signed_percent(one.change_share)
    if one.low_share is None or one.high_share is None:
        return share
    return f"{share} ({signed_percent(one.low_share)} to {signed_percent(one.high_share)})"
