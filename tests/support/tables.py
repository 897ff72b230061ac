"""Tables of examples in files of their own: a row a line, columns separated by tabs, comments from "#"."""

from __future__ import annotations

from pathlib import Path


def table(path: Path) -> list[list[str]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]


def said(value: object) -> str:
    """As in a table."""
    return "-" if value is None else str(value)
