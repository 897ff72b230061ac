"""docs/gallery/: docs/gallery.py names its pages, its list is current, and it contains no paths of a machine."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from traceopt.api import analyze
from traceopt.result.document import Result
from traceopt.result.encoding.packing import embedded_result

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "gallery"
MOST_BYTES = 3_000_000  # in all: what is committed stays in every clone
GALLERY = runpy.run_path(str(ROOT / "docs" / "gallery.py"))
PAGES = {page.name: page for page in GALLERY["PAGES"]}

of_each_page = pytest.mark.parametrize("name", PAGES)


def test_the_folder_holds_its_pages_and_nothing_else() -> None:
    wanted = {f"{name}{ending}" for name in PAGES for ending in (".html", ".png")} | {"README.md"}
    assert {path.name for path in FOLDER.iterdir()} == wanted, "run: make gallery"


def test_the_list_is_current() -> None:
    assert (FOLDER / "README.md").read_text(encoding="utf-8") == GALLERY["index"](), "run: make gallery"


def test_the_readme_the_tutorial_and_the_picture_are_of_the_same_plan() -> None:
    """Of the first page, whose picture both show: `make gallery` writes all of them."""
    first, *_ = GALLERY["PAGES"]
    shown = GALLERY["result_of"](first)
    now = analyze(str(ROOT / first.trace))
    assert (shown.verdict, shown.plan, shown.combined) == (now.verdict, now.plan, now.combined), "run: make gallery"
    for page in ("README.md", "docs/tutorial.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert f"traceopt analyze {first.trace}" in text
        assert f"gallery/{first.name}.png" in text


def test_it_stays_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < MOST_BYTES


@of_each_page
def test_a_report_of_the_trace_in_the_list(name: str) -> None:
    document = embedded_result((FOLDER / f"{name}.html").read_text(encoding="utf-8"))
    assert all(path.startswith(PAGES[name].trace) for path in Result.from_json(document).run.paths)
    assert re.findall(r'"(?:/|~|[A-Z]:)[^"]*"', document.decode()) == []  # paths of a machine


@of_each_page
def test_a_picture_of_the_first_screen(name: str) -> None:
    head = (FOLDER / f"{name}.png").read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    size = (int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big"))
    assert size == (GALLERY["WIDTH"], GALLERY["HEIGHT"])
