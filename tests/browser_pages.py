"""One Chromium for all browser tests, and pages that fail a test on any request, console line or error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from traceopt.reports.html import page as report_page
from traceopt.result.document import Result

CHROMIUM = Path("/usr/bin/chromium")  # Debian's

OpenPage = Callable[..., Any]
Rendered = Callable[[Result, bool, bool], Path]


class Tab:
    """A page that tests use one after the other: one of its own would cost each test a second of starting processes."""

    def __init__(self, browser: Any) -> None:
        self.page = browser.new_context().new_page()
        self.complaints: list[str] = []
        self.watch(self.page)

    def watch(self, page: Any) -> Any:
        page.set_default_timeout(15_000)
        page.on("request", self._request)
        page.on("console", lambda message: self.complaints.append(f"console: {message.text[:200]}"))
        page.on("pageerror", lambda error: self.complaints.append(f"error: {str(error)[:200]}"))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message[:200]}"))
        return page

    def _request(self, request: Any) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            self.complaints.append(f"request: {request.url[:200]}")

    def leave(self) -> None:
        """Leaves nothing of a test for the next one."""
        if self.page.url != "about:blank":
            self.page.evaluate("localStorage.clear()")
            self.page.mouse.move(0, 0)
            self.page.goto("about:blank")
        self.page.emulate_media(media="null")
        for other in self.page.context.pages[1:]:
            other.close()
        self.complaints.clear()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not installed (apt install chromium)")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="session")
def tab(browser: Any) -> Tab:
    return Tab(browser)


@pytest.fixture
def open_page(browser: Any, tab: Tab) -> Iterator[OpenPage]:
    """Opens a file, in place of the one before. Nothing may be requested, logged or thrown until the end of the test.
    `options`: of a context of its own.
    """
    contexts = []

    def open_it(
        file: Path, *, width: int = 1280, color_scheme: str = "light", fragment: str = "", **options: Any
    ) -> Any:
        page = tab.page
        if options:
            contexts.append(browser.new_context(**options))
            page = tab.watch(contexts[-1].new_page())
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=color_scheme)
        page.goto("about:blank")  # else another fragment of the same file would not load it again
        page.goto(f"file://{file}{fragment}")
        return page

    yield open_it
    complaints = [*tab.complaints]
    for context in contexts:
        context.close()
    tab.leave()
    assert complaints == []


@pytest.fixture(scope="session")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    """The page of a result in a file, rendered once."""
    folder = tmp_path_factory.mktemp("pages")
    files: dict[tuple[bytes, bool, bool], Path] = {}

    def render(result: Result, static: bool, figures: bool) -> Path:
        key = result.to_json(), static, figures
        if key not in files:
            files[key] = folder / f"{len(files)}.html"
            with pytest.MonkeyPatch.context() as patch:
                if not figures:
                    patch.setattr(report_page, "plotly", lambda: None)
                files[key].write_text(report_page.render_html(result, static=static), encoding="utf-8")
        return files[key]

    return render


@pytest.fixture
def open_report(open_page: OpenPage, rendered: Rendered) -> OpenPage:
    """Opens the page of a result, as `open_page` does. `figures`: with those of Plotly, which take half of the time."""

    def open_it(result: Result, *, static: bool = False, figures: bool = False, **options: Any) -> Any:
        return open_page(rendered(result, static, figures), **options)

    return open_it
