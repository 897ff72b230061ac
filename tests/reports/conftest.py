"""One Chromium for all browser tests, and pages that fail a test on any request, console line or error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from traceopt.reports.html.page import render_html
from traceopt.result.document import Result

CHROMIUM = Path("/usr/bin/chromium")  # Debian's

OpenReport = Callable[..., Any]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not installed (apt install chromium)")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def open_report(browser: Any, tmp_path: Path) -> Iterator[OpenReport]:
    """Renders a result and opens it from disk. Nothing may be requested, logged or thrown until the end."""
    complaints: list[str] = []
    contexts = []

    def watch_request(request: Any) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            complaints.append(f"request: {request.url[:200]}")

    def open_it(result: Result, *, width: int = 1280, fragment: str = "", static: bool = False, **options: Any) -> Any:
        file = tmp_path / f"report-{len(contexts)}.html"
        file.write_text(render_html(result, static=static), encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("request", watch_request)
        page.on("console", lambda message: complaints.append(f"console: {message.text[:200]}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {str(error)[:200]}"))
        page.goto(f"file://{file}{fragment}")
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert complaints == []
