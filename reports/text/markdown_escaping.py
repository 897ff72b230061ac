"""Markdown in which untrusted text stays text on GitHub and GitLab.

Both hosts also turn mentions, issue numbers, commits, emoji, formulas and addresses into links or markup. They leave
code alone, so a word that could be one of these becomes code, without the punctuation around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from traceopt.reports.words import names, safe_text
from traceopt.reports.words.tables import Cell, ShownTable
from traceopt.result.tables.columns import CODE_TYPES, Column

_REFERENCE = re.compile(
    r"[@#$~&]|[!%]\w|:[\w+-]+:"  # @who #1 $math$ ~label &epic !1 %milestone :emoji:
    r"|://|www\.|\bGH-\d"  # links
    r"|\b(?=[a-f]*\d)[0-9a-f]{7,}\b|\b[a-f]{40}\b",  # a commit
    re.IGNORECASE,
)
_MARKUP = re.compile(r"[\\`*{}\[\]<>]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")  # "_" inside a name marks nothing
_STARTS_A_BLOCK = re.compile(r"^(\d*)(?=[-+=.)/])")  # lists, rules, and GitLab's /commands
_PUNCTUATED = re.compile(r"(\(?)(.*?[^).,:;])([).,:;]*)", re.DOTALL)  # of the sentence, not of the name
_BACKTICKS = re.compile("`+")
_PIPE_AFTER_BACKSLASH = re.compile(r"(?<=\\)\|")


def prose(value: str) -> str:
    """A sentence or a title in which nothing is markup, a link or a mention."""
    return _sentence([_words(value)])


def prose_with_names(message: str) -> str:
    """The same of a message, with its names and places as inline code."""
    return _sentence(code(piece) if is_name else _words(piece) for piece, is_name in names.pieces(message))


def code(value: str) -> str:
    """A name, path or other string of a trace, as inline code."""
    cleaned = safe_text.clean(value).strip()
    return _span(cleaned) if cleaned else ""


def code_block(source: str, language: str) -> str:
    """Lines of source or a patch. `language` must not come from the trace."""
    body = safe_text.clean_source(source).rstrip("\n")
    fence = _fence(body, 3)
    return f"{fence}{language}\n{body}\n{fence}"


def table(head: Sequence[str], aligned: str, rows: Iterable[Sequence[str]]) -> str:
    """A table of escaped cells. `aligned` has an "l" or an "r" for each column."""
    rules = ["-:" if side == "r" else ":-" for side in aligned]
    return "\n".join(f"| {' | '.join(map(_cell, cells))} |" for cells in (head, rules, *rows))


def columns_table(shown: ShownTable) -> str:
    """A table from its columns and cells; "" without rows."""
    if not shown.rows:
        return ""
    head = [column.label for column in shown.columns]
    aligned = "".join("r" if column.is_number else "l" for column in shown.columns)
    rows = [[_value(*pair) for pair in zip(shown.columns, row.cells, strict=True)] for row in shown.rows]
    return table(head, aligned, rows)


def folded(summary: str, body: str) -> str:
    """A section that opens with a click. `summary` must not come from the trace or hold markup."""
    return f"<details><summary>{summary}</summary>\n\n{body}\n\n</details>"


def _value(column: Column, cell: Cell) -> str:
    """A cell by the type of its column: names are code, and numbers need no escaping."""
    text = cell.text or "–"
    if cell.text and not column.is_number:
        text = code(text) if column.type in CODE_TYPES else prose(text)
    return f"{text} ({prose(cell.beside)})" if cell.beside else text


def _sentence(pieces: Iterable[str]) -> str:
    return _STARTS_A_BLOCK.sub(r"\1\\", "".join(pieces).strip())


def _words(text: str) -> str:
    """With the spaces at its ends, which part it from a name."""
    return " ".join(map(_word, safe_text.clean(text, safe_text.PROSE_CAP).split(" ")))


def _word(word: str) -> str:
    if not _REFERENCE.search(word):
        return _MARKUP.sub(r"\\\g<0>", word)
    opening, name, closing = _PUNCTUATED.fullmatch(word).groups()  # type: ignore[union-attr]  # every word matches
    return f"{opening}{_span(name)}{closing}"


def _span(text: str) -> str:
    text = _PIPE_AFTER_BACKSLASH.sub(r"\\x7c", text)  # in a table this pipe would end the column, even if escaped
    fence = _fence(text, 1)
    padding = " " if "`" in (text[0], text[-1]) else ""
    return f"{fence}{padding}{text}{padding}{fence}"


def _cell(content: str) -> str:
    return content.replace("|", r"\|")


def _fence(content: str, least: int) -> str:
    longest = max((len(run) for run in _BACKTICKS.findall(content)), default=0)
    return "`" * max(least, longest + 1)
