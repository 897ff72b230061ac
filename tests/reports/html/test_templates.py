"""The templates: short lines, and nothing that counts columns."""

from __future__ import annotations

import re

import pytest

from traceopt.reports.html.page import TEMPLATES
from traceopt.reports.html.page_scripts import ASSETS

LONGEST_LINE = 160
FILES = sorted(TEMPLATES.rglob("*.j2"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(TEMPLATES)))
def test_lines_are_short(file) -> None:
    lines = file.read_text(encoding="utf-8").splitlines()
    assert [number for number, line in enumerate(lines, 1) if len(line) > LONGEST_LINE] == []


def test_columns_are_not_counted() -> None:
    """Only rows and tiles are: alignment and widths follow from the type of a column."""
    style = "".join(file.read_text(encoding="utf-8") for file in sorted((ASSETS / "style").iterdir()))
    counted = re.findall(r"([^\s,({]*):nth-child", style)
    assert counted
    assert [selector for selector in counted if not selector.startswith(("tr", ".tile"))] == []
