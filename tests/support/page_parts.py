"""Parts of a rendered page."""

from __future__ import annotations

import re

from traceopt.reports.html.page import render_html
from traceopt.result.document import Result


def page_of(result: Result) -> str:
    return render_html(result, static=True).replace("\u00a0", " ").replace("&nbsp;", " ")


def visible(page: str) -> str:
    """The words of a page, without scripts, styles and tags."""
    body = re.sub(r"<(script|style)\b.*?</\1>", "", page[page.index("<body>") :], flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))
