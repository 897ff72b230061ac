"""What a notebook shows of a result: a summary that cannot run, reach out or change the page around it."""

from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser_pages import OpenPage
from msgspec.structs import replace
from support.traces import GetExample

from fixtures.hostile import hostile_trace
from traceopt.api import analyze
from traceopt.reports.words import run_words
from traceopt.reports.words.display import for_display
from traceopt.result.document import Result
from traceopt.run_comparison import compare

ROOT = Path(__file__).resolve().parents[1]
TAGS = {"div", "style", "p", "b", "i", "table", "tr", "th", "td", "code"}
ATTRIBUTES = {"class", "style", "role", "aria-label", "aria-level", "scope"}
STYLES = re.compile(r"--c:var\(--[a-z]+\)(;flex:[\d.]+ 0 0)?")


class Parts(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.style = self.text = ""
        self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._inside = tag
        self.tags.add(tag)
        self.attributes += attributes

    def handle_endtag(self, _: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "style":
            self.style += data
        else:
            self.text += data


@pytest.fixture(params=["five_faults", "straggler", "cpu_only", "healthy", "no_profiler_step", "hostile"])
def result(example: GetExample, request: pytest.FixtureRequest, tmp_path: Path) -> Result:
    if request.param == "hostile":
        return analyze(str(hostile_trace().write(tmp_path / "hostile.json")))
    return example(request.param).result


def test_only_harmless_parts(example: GetExample, result: Result) -> None:
    assert_only_harmless_parts(result._repr_html_())
    comparison = compare(example("healthy").result, result)
    assert_only_harmless_parts(comparison._repr_html_())
    assert len(repr(comparison)) < 500


def assert_only_harmless_parts(page: str) -> None:
    parts = Parts(page)
    assert parts.tags <= TAGS
    assert {name for name, _ in parts.attributes} <= ATTRIBUTES
    assert [value for name, value in parts.attributes if name == "style" and not STYLES.fullmatch(value or "")] == []


def test_every_style_rule_begins_with_our_class(result: Result) -> None:
    style = re.sub(r"/\*.*?\*/", "", Parts(result._repr_html_()).style, flags=re.DOTALL)
    selectors = [one.strip() for rule in re.findall(r"([^{}]+)\{[^{}]*\}", style) for one in rule.split(",")]
    assert len(selectors) > 10
    assert [one for one in selectors if ".traceopt-summary" not in one.split()[:2]] == []
    assert not re.search(r"url\(|@import|expression|\b(?:position|z-index)\b", style)
    whole = result._repr_html_()
    used, known = (set(re.findall(pattern, whole)) for pattern in (r"var\((--[a-z0-9-]+)\)", r"(--[a-z0-9-]+):"))
    assert used <= known, "a color that the report has no more"


def test_it_says_what_the_report_says(example: GetExample) -> None:
    result = example("five_faults").result
    text = Parts(result._repr_html_()).text
    assert run_words.verdict(for_display(result)) in text
    assert "53%" in text
    for finding in result.findings[:5]:
        assert finding.title in text
    assert "Fix, the first 5 of 6" in text
    assert run_words.checks_line(result) in text


def test_the_bars_have_their_times_and_places_a_column_if_there_are_any(example: GetExample) -> None:
    result = example("five_faults").result
    text = Parts(result._repr_html_()).text.replace("\u00a0", " ")
    assert "Now, 43.0 ms" in text
    assert "After the plan, ≈ 18.8 ms" in text
    assert "Where" in text
    findings = [replace(one, locations=[], evidence=[]) for one in result.findings]
    assert "Where" not in Parts(replace(result, findings=findings)._repr_html_()).text


def test_parts_of_the_bar_have_names_and_the_patterns_of_the_report(example: GetExample) -> None:
    page = example("five_faults").result._repr_html_()
    assert {"Waiting for data", "Logging", "Compute kernels"} <= set(re.findall(r"<b>([^<]+)</b></i>", page))
    assert {"p-diagonal", "p-dots", "p-horizontal"} <= set(re.findall(r'<i class="swatch (p-\w+)"', page))
    assert ".traceopt-summary i.p-dots {" in page


def test_a_comparison_has_the_patterns_of_the_report_and_names_as_code(example: GetExample) -> None:
    page = compare(example("healthy").result, example("five_faults").result)._repr_html_()
    assert {"p-diagonal", "p-dots", "p-horizontal"} <= set(re.findall(r'<i class="swatch (p-\w+)"', page))
    assert re.search(r"<td><code>\w+", page)


def test_a_comparison_has_a_bar_for_each_side_and_names_what_is_gone(example: GetExample) -> None:
    page = compare(example("five_faults").result, example("healthy").result)._repr_html_()
    assert [name for name in ("BASE", "HEAD") if f'role="img" aria-label="{name}:' in page] == ["BASE", "HEAD"]
    assert re.search(r"No longer seen</td>\s*<td>Load data in worker processes \(DL001\)", page)


def test_the_same_each_time(result: Result) -> None:
    assert result._repr_html_() == result._repr_html_()


def test_the_text_beside_it_is_short(result: Result) -> None:
    assert len(repr(result)) < 500
    assert result.verdict[:20] in repr(result)


PAGE = """<!doctype html><title>host</title><style>p { color: rgb(1, 2, 3) } td { padding: 7px }</style>
<p id="before">A page</p><table><tr><td id="cell">1</td></tr></table>%s<p id="after">goes on</p>"""
SEEN = """({
    before: getComputedStyle(document.querySelector('#before')).color,
    after: getComputedStyle(document.querySelector('#after')).color,
    cell: getComputedStyle(document.querySelector('#cell')).padding,
    bar: [...document.querySelector('.bar').children].reduce((sum, i) => sum + i.getBoundingClientRect().width, 0),
    room: document.querySelector('.bar').getBoundingClientRect().width,
    wide: document.documentElement.scrollWidth - innerWidth,
    scripts: document.scripts.length, title: document.title, pwned: window.pwned === undefined,
})"""


def test_it_leaves_the_page_around_it_alone(result: Result, open_page: OpenPage, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(PAGE % result._repr_html_(), encoding="utf-8")
    seen = open_page(tmp_path / "page.html").evaluate(SEEN)
    assert (seen["before"], seen["after"], seen["cell"]) == ("rgb(1, 2, 3)", "rgb(1, 2, 3)", "7px")
    assert (seen["scripts"], seen["title"], seen["pwned"]) == (0, "host", True)
    assert seen["wide"] <= 0
    assert 0.9 * seen["room"] < seen["bar"] <= seen["room"]


def test_a_narrow_notebook_cuts_nothing(example: GetExample, open_page: OpenPage, tmp_path: Path) -> None:
    slow, healthy = (example(name).result for name in ("five_faults", "healthy"))
    for summary in (slow._repr_html_(), compare(slow, healthy)._repr_html_()):
        (tmp_path / "page.html").write_text(f'<div style="width: 380px">{summary}</div>', encoding="utf-8")
        inside = "(it => it.scrollWidth - it.clientWidth)(document.querySelector('.traceopt-summary'))"
        assert open_page(tmp_path / "page.html").evaluate(inside) == 0


@pytest.mark.slow
def test_the_examples_of_the_docs_run_in_a_notebook(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    for folder, trace in (("logs", "five_faults"), ("logs-after", "healthy")):
        (tmp_path / folder).mkdir()
        shutil.copy(ROOT / "fixtures" / "traces" / f"{trace}.json.gz", tmp_path / folder)
    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    sources = [*re.findall(r"```python\n(.*?)```", page, re.DOTALL), "comparison"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources).execute()
    shown = [cell.outputs[-1].data if cell.outputs else {} for cell in notebook.cells]
    summary, _, steps, _, parts, lost, compared = shown
    assert 'class="traceopt-summary"' in summary["text/html"]
    assert len(summary["text/html"]) < 20_000
    assert summary["text/plain"].startswith("<Result 'The GPU is idle for 47%")
    for figure in (steps, parts):
        assert len(figure["application/vnd.plotly.v1+json"]["data"]) > 1
    assert "model.py" in lost["text/plain"]
    assert "The step takes 60% less time" in compared["text/html"]
    assert (tmp_path / "kernels.html").stat().st_size > 1_000_000
