"""The colors of the summary in a notebook, in a browser."""

from __future__ import annotations

import re
from typing import Any

import pytest
import sample

from traceopt.reports.html.notebook import render_notebook


def test_bars_have_patterns(browser: Any) -> None:
    page = browser.new_page()
    page.set_content(render_notebook(sample.rich()))
    image = "every => every.map(one => getComputedStyle(one).backgroundImage)"
    assert "gradient" in page.locator(".bar").first.locator(".p-diagonal").evaluate_all(image)[0]
    page.close()


@pytest.mark.parametrize(
    ("mark", "setting", "dark"),
    [
        ("", "dark", True),
        ("", "light", False),
        ('data-jp-theme-light="false"', "light", True),
        ('data-jp-theme-light="true"', "dark", False),
    ],
)
def test_it_is_dark_in_a_dark_page(browser: Any, mark: str, setting: Any, dark: bool) -> None:
    page = browser.new_page(color_scheme=setting)
    page.set_content(f"<body {mark}>{render_notebook(sample.rich())}")
    color = page.evaluate("getComputedStyle(document.querySelector('.traceopt-summary')).backgroundColor")
    page.close()
    assert (max(map(int, re.findall(r"\d+", color)[:3])) < 128) is dark
