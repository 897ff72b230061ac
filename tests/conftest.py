"""What the tests share: the repository's root on the path, each generated trace analyzed once, one Chromium."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.api import analyze
from traceopt.result.document import Result

HERE = Path(__file__).resolve().parent
sys.path[:0] = [
    str(HERE.parent),
    str(HERE / "analyzer"),
]  # for fixtures/, which is not installed, and for same_traces.py

from real_traces_marker import pytest_collection_modifyitems  # noqa: E402, F401  # a hook of pytest

from fixtures.generate import Planted, generate_ranks  # noqa: E402

CHROMIUM = Path("/usr/bin/chromium")  # Debian's


@dataclass(frozen=True)
class Example:
    """One generated trace in a file, and what was planted in it."""

    path: Path
    planted: Planted

    @cached_property
    def result(self) -> Result:
        """Of the whole pipeline. A rule that raises fails the test."""
        return analyze(str(self.path), debug=True)

    @cached_property
    def facts(self) -> Facts:
        return Facts(read_trace(io.BytesIO(self.path.read_bytes()), self.path.name))


GetExample = Callable[..., Example]


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> GetExample:
    """`example(scenario, fixed=False)`: rank 0 of a scenario of fixtures/, generated and analyzed once a session."""
    folder = tmp_path_factory.mktemp("examples")
    known: dict[tuple[str, bool], Example] = {}

    def get(scenario: str, fixed: bool = False) -> Example:
        key = (scenario, fixed)
        if key not in known:
            trace = generate_ranks(scenario, fixed=fixed)[0]
            path = trace.write(folder / f"{scenario}{'_fixed' if fixed else ''}.json")
            known[key] = Example(path, trace.planted)
        return known[key]

    return get


@dataclass(frozen=True)
class Visit:
    """What a page did in the browser. `complaints`: requests, console lines, errors; `value` is the script's."""

    complaints: list[str]
    value: Any


class Chromium:
    """A browser on a thread of its own: Playwright allows one at a time on a thread, and tests/reports has one."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._thread.submit(self._start).result()

    def _start(self) -> None:
        from playwright.sync_api import sync_playwright

        self._playwright = sync_playwright().start()
        self._browser = self._playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        self._page = self._browser.new_page(viewport={"width": 1280, "height": 900})
        self._complaints: list[str] = []
        self._page.on("request", self._watch)
        self._page.on("console", lambda message: self._complaints.append(f"console: {message.text[:200]}"))
        self._page.on("pageerror", lambda error: self._complaints.append(f"error: {str(error)[:200]}"))
        self._page.on("dialog", lambda dialog: self._complaints.append(f"dialog: {dialog.message[:200]}"))

    def _watch(self, request: Any) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            self._complaints.append(f"request: {request.url[:200]}")

    def visit(self, file: Path, *scripts: str) -> Visit:
        """Opens a file, runs scripts in it, and lets the page come to rest; the value is the last script's."""
        return self._thread.submit(self._visit, file, scripts).result()

    def _visit(self, file: Path, scripts: tuple[str, ...]) -> Visit:
        self._complaints.clear()
        self._page.goto(file.as_uri())
        value = None
        for script in scripts:
            value = self._page.evaluate(script)
        self._page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return Visit(list(self._complaints), value)

    def close(self) -> None:
        self._thread.submit(self._stop).result()
        self._thread.shutdown()

    def _stop(self) -> None:
        self._browser.close()
        self._playwright.stop()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not installed (apt install chromium)")
    running = Chromium()
    yield running
    running.close()
