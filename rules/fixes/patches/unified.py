"""Unified diffs for `git apply`: created from two texts, and applied as a check."""

from __future__ import annotations

import difflib
import io
import re

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@\n")
_NO_NEWLINE = "\\ No newline at end of file\n"


def unified_diff(path: str, before: str, after: str) -> str:
    """The diff from `a/path` to `b/path`, with three lines of context."""
    name = f"{path}\t" if " " in path else path  # marks the end of a name with spaces
    rows = difflib.unified_diff(_lines(before), _lines(after), f"a/{name}", f"b/{name}")
    return "".join(row if row.endswith("\n") else f"{row}\n{_NO_NEWLINE}" for row in rows)


def apply_diff(text: str, diff: str) -> str:
    """The text with the hunks of a one-file diff applied at exactly the lines they name.

    Raises ValueError if a context line, a removed line or a count differs.
    """
    lines, rows = _lines(text), _lines(diff)[2:]
    out: list[str] = []
    taken = 0
    while rows:
        head = _HUNK.fullmatch(rows.pop(0))
        if head is None:
            raise ValueError("not a hunk")
        start, count, new_count = int(head[1]), int(head[2] or 1), int(head[4] or 1)
        first = start - 1 if count else start
        old, new = _sides(rows)
        if len(old) != count or len(new) != new_count or lines[first : first + count] != old or first < taken:
            raise ValueError("the hunk does not fit")
        out += [*lines[taken:first], *new]
        taken = first + count
    return "".join([*out, *lines[taken:]])


def _sides(rows: list[str]) -> tuple[list[str], list[str]]:
    """Removes a hunk's lines from `rows`; returns the lines before the change and those after it."""
    old: list[str] = []
    new: list[str] = []
    while rows and not rows[0].startswith("@@"):
        row = rows.pop(0)
        if rows and rows[0] == _NO_NEWLINE:
            rows.pop(0)
            row = row[:-1]
        if row[0] in " -":
            old.append(row[1:])
        if row[0] in " +":
            new.append(row[1:])
    return old, new


def _lines(text: str) -> list[str]:
    """Lines with their line ends. str.splitlines also splits where git does not."""
    return list(io.StringIO(text, newline="\n"))
