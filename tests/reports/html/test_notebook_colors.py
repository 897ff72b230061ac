"""The colors of the summary in a notebook, in a browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import sample
from browser_pages import OpenPage

from traceopt.reports.html.notebook import render_notebook


def opened(open_page: OpenPage, folder: Path, mark: str = "", color_scheme: str = "light") -> Any:
    """The summary in a page whose body has this mark."""
    (folder / "page.html").write_text(f"<body {mark}>{render_notebook(sample.rich())}", encoding="utf-8")
    return open_page(folder / "page.html", color_scheme=color_scheme)


def test_bars_have_patterns(open_page: OpenPage, tmp_path: Path) -> None:
    image = "every => every.map(one => getComputedStyle(one).backgroundImage)"
    bars = opened(open_page, tmp_path).locator(".bar").first
    assert "gradient" in bars.locator(".p-diagonal").evaluate_all(image)[0]


@pytest.mark.parametrize(
    ("mark", "setting", "dark"),
    [
        ("", "dark", True),
        ("", "light", False),
        ('data-jp-theme-light="false"', "light", True),
        ('data-jp-theme-light="true"', "dark", False),
    ],
)
def test_it_is_dark_in_a_dark_page(open_page: OpenPage, tmp_path: Path, mark: str, setting: str, dark: bool) -> None:
    page = opened(open_page, tmp_path, mark, setting)
    color = page.evaluate("getComputedStyle(document.querySelector('.traceopt-summary')).backgroundColor")
    assert (max(map(int, re.findall(r"\d+", color)[:3])) < 128) is dark
