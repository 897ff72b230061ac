"""Parts of a rendered page."""

from __future__ import annotations

import re
from typing import Any

from traceopt.reports.html.page import render_html
from traceopt.result.document import Result


def page_of(result: Result) -> str:
    return render_html(result, static=True).replace("\u00a0", " ").replace("&nbsp;", " ")


def visible(page: str) -> str:
    """The words of a page, without scripts, styles and tags."""
    body = re.sub(r"<(script|style)\b.*?</\1>", "", page[page.index("<body>") :], flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


def unpack_timeline(page: Any) -> Any:
    """Scrolls to the timeline, which then unpacks its spans."""
    page.locator("#timeline-box").scroll_into_view_if_needed()
    page.wait_for_selector("#span-canvas[data-ready]")
    return page
