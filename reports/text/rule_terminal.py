"""Rules for a terminal: the list of all, and the page of one, whose Markdown is rendered."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from textwrap import wrap

from traceopt.reports.text.terminal_lines import Terminal, pad
from traceopt.result.words.quantities import NO_BREAK_SPACE

_CODE = re.compile(r"`([^`]+)`")


def rules_list(families: Mapping[str, Sequence[tuple[str, str, str]]], terminal: Terminal) -> str:
    """Code, name and title of each rule, below its family."""
    blocks = ([terminal.style(family, bold=True), *_columns(rows, terminal)] for family, rows in families.items())
    return "\n\n".join(map("\n".join, blocks)) + "\n"


def rule_text(page: str, terminal: Terminal) -> str:
    """The page of a rule: headings, paragraphs, examples and the table of thresholds."""
    blocks = (_block(block.split("\n"), terminal) for block in page.strip().split("\n\n"))
    return "\n\n".join(map("\n".join, blocks)) + "\n"


def _block(lines: Sequence[str], terminal: Terminal) -> list[str]:
    if lines[0].startswith("#"):
        return [terminal.style(terminal.plain(lines[0].lstrip("# ")), bold=True)]
    if lines[0].startswith("|"):
        _, _, *rows = [[_CODE.sub(r"\1", cell.strip()) for cell in line.strip("|").split("|")] for line in lines]
        return _columns(rows, terminal)
    if lines[0].startswith("    "):
        return [terminal.plain(line) for line in lines]
    text = _CODE.sub(lambda code: code[0].replace(" ", NO_BREAK_SPACE), " ".join(lines))
    bold = text.startswith("**")
    return [_painted(line, bold, terminal) for line in terminal.wrap(text.strip("*"))]


def _painted(line: str, bold: bool, terminal: Terminal) -> str:
    return _CODE.sub(lambda code: terminal.style(code[1], fg="cyan"), terminal.style(line, bold=bold))


def _columns(rows: Sequence[Sequence[str]], terminal: Terminal) -> list[str]:
    """Rows whose last cell is wrapped in its own column."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    margin = 2 + sum(widths) + 2 * len(widths)
    lines = []
    for *cells, last in rows:
        start = "  " + "".join(f"{pad(cell, width)}  " for cell, width in zip(cells, widths, strict=True))
        first, *rest = wrap(last, max(20, terminal.width - margin)) or [""]
        lines += [terminal.plain(start + first), *(terminal.plain(" " * margin + line) for line in rest)]
    return lines
