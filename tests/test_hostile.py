"""A trace whose names attack: they show as text in every format, and in a browser."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest
from rendered_page import Page

from fixtures.hostile import HOSTILE, hostile_trace
from traceopt.api import analyze
from traceopt.reports.ci.github import ANNOTATIONS, render_github
from traceopt.reports.ci.gitlab import render_gitlab
from traceopt.reports.ci.sarif import render_sarif
from traceopt.reports.html.page import render_html
from traceopt.reports.text.markdown import render_markdown
from traceopt.reports.text.terminal import render_concise, render_terminal
from traceopt.result.document import Result

if TYPE_CHECKING:
    from conftest import Chromium, GetExample

# What a scenario shows in its report: idle GPU, communication, no GPU at all, no memory, nothing to fix.
SCENARIOS = ("five_faults", "exposed_allreduce", "cpu_only", "launch_bound", "memory_pressure", "healthy", "cold_start")

OPEN_ALL = "document.querySelectorAll('details').forEach(d => d.open = true)"
SIGNS_OF_AN_ATTACK = """({
    pwned: window.pwned === undefined ? null : window.pwned,
    title: document.title,
    images: document.querySelectorAll('img, iframe, object, embed, link, base').length,
    handlers: [...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames())
        .filter(name => name.startsWith('on')).length,
    scripts: document.scripts.length,
    foreign: [...document.querySelectorAll('a[href]')].map(a => a.getAttribute('href')).filter(h => h[0] !== '#'),
    bold: [...document.querySelectorAll('b')].filter(b => b.textContent === 'bold').length,
    text: document.body.innerText,
})"""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Result:
    path = hostile_trace().write(tmp_path_factory.mktemp("hostile") / "hostile.json")
    return analyze(str(path), debug=True)


def test_the_attack_reaches_the_document(hostile: Result) -> None:
    """Else the tests below would show nothing."""
    text = hostile.to_json().decode()
    assert "<script>" in text
    assert "onerror" in text
    assert "\\u001b[2J" in text
    assert any(kernel.name.count("<script>") for kernel in hostile.kernels)
    rows = [row for finding in hostile.findings for row in finding.evidence]
    assert any("<" in str(row.location) for row in rows)
    assert any("\x1b" in str(location) for finding in hostile.findings for location in finding.locations)
    assert {f.code for f in hostile.findings} >= {"DL001", "GM001"}


ALLOWED_CONTROLS = {"\n"}


def moves_or_hides(char: str) -> bool:
    """Controls (C0, C1, DEL), bidirectional marks, zero-width and other format characters, surrogates."""
    return char not in ALLOWED_CONTROLS and unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")


@pytest.mark.parametrize("unicode", [True, False])
@pytest.mark.parametrize("width", [60, 80, 140])
def test_terminal(hostile: Result, width: int, unicode: bool) -> None:
    shown = render_terminal(hostile, width=width, color=False, unicode=unicode)
    assert [hex(ord(char)) for char in shown if moves_or_hides(char)] == []
    assert unicode or shown.isascii()
    assert max(map(len, shown.splitlines())) <= width


def test_terminal_in_color_has_our_colors_alone(hostile: Result) -> None:
    shown = render_terminal(hostile, width=100, color=True, unicode=True)
    assert "\x1b[" in shown
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert [hex(ord(char)) for char in plain if moves_or_hides(char)] == []
    assert plain == render_terminal(hostile, width=100, color=False, unicode=True)


def test_concise_has_a_line_for_each_finding(hostile: Result) -> None:
    lines = render_concise(hostile).splitlines()
    assert [hex(ord(char)) for line in lines for char in line if moves_or_hides(char)] == []
    assert len([line for line in lines if re.search(r"\b[A-Z]{2}\d{3}\b", line)]) >= len(hostile.findings)
    commands = ("::", "##vso[", "##teamcity[", "%%")
    assert [line for line in lines if line.lstrip().startswith(commands)] == []


def test_json(hostile: Result) -> None:
    """The names are data here: kept whole, and escaped so that no control character is in the bytes."""
    data = hostile.to_json()
    assert Result.from_json(data) == hostile
    assert [byte for byte in data if byte < 0x20 and byte != 0x0A] == []
    assert orjson.loads(data)["schema_version"] == hostile.schema_version


def test_formats_of_pull_requests(hostile: Result) -> None:
    """Whole and valid; what their readers make of each string is tested in tests/reports."""
    page = Page(render_markdown(hostile))
    assert not {"a", "img", "script", "b", "svg", "input"} & set(page.tags)
    assert not set(re.findall(r"@everyone|#1\b|https?://", page.outside_code))
    assert page.tags.count("h3") == 1
    assert '<img src=x onerror="window.pwned=3">' in page.text
    for render in (render_markdown, render_github, render_gitlab, render_sarif):
        output = render(hostile)
        assert [hex(ord(char)) for char in set(output) if moves_or_hides(char)] == []
    lines = render_github(hostile).splitlines()
    assert len(lines) == min(len(hostile.findings), ANNOTATIONS)
    assert [
        line for line in lines if not line.startswith(("::warning title=traceopt ", "::notice title=traceopt "))
    ] == []
    assert "##" not in render_github(hostile).replace("###", "")
    assert orjson.loads(render_sarif(hostile))["runs"][0]["results"]
    assert orjson.loads(render_gitlab(hostile))


@pytest.mark.parametrize("static", [True, False])
def test_html_source(hostile: Result, static: bool) -> None:
    page = render_html(hostile, static=static)
    for attack in (
        "<script>document.title",
        "<img src=x",
        "<svg onload",
        "<b>bold</b>",
        "</style><script>",
        "<!-- <det",
    ):
        assert attack not in page
    assert [hex(ord(char)) for char in set(page) if moves_or_hides(char) and char != "\t"] == []
    assert "{{ 6*7 }}{% endraw %}${6*7}#{6*7}" in page  # no template ran


@pytest.mark.parametrize("static", [True, False])
def test_html_in_chromium(hostile: Result, chromium: Chromium, tmp_path: Path, static: bool) -> None:
    page = tmp_path / "report.html"
    page.write_text(render_html(hostile, static=static), encoding="utf-8")
    visit = chromium.visit(page, OPEN_ALL, SIGNS_OF_AN_ATTACK)
    seen = visit.value
    assert visit.complaints == []
    assert seen["pwned"] is None
    assert not seen["title"].startswith("pwned")
    assert (seen["images"], seen["handlers"], seen["foreign"], seen["bold"]) == (0, 0, [], 0)
    assert "<script>document.title='pwned-1'</script>" in seen["text"]
    assert "{{ 6*7 }}" in seen["text"]


def test_html_is_as_long_as_for_friendly_names(hostile: Result, example: GetExample) -> None:
    """A name of 3000 characters is cut, not copied into every cell."""
    friendly = render_html(example("five_faults").result, static=True)
    assert len(render_html(hostile, static=True)) < 3 * len(friendly)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_reports_are_quiet(example: GetExample, chromium: Chromium, tmp_path: Path, scenario: str) -> None:
    """No request, no console line, no error; complete without a script's help."""
    page = tmp_path / "report.html"
    result = example(scenario).result
    page.write_text(render_html(result, static=scenario != "five_faults"), encoding="utf-8")
    visit = chromium.visit(page, OPEN_ALL, "document.body.innerText")
    assert visit.complaints == []
    for finding in result.findings:
        assert finding.title in visit.value


def test_the_names_attack_in_every_way() -> None:
    together = "".join(HOSTILE)
    for weapon in (
        "<script",
        "onerror=",
        "javascript:",
        "{{",
        "\x1b[",
        "\x07",
        "\u202e",
        "::error",
        "##vso",
        "\x00",
        "=H",
    ):
        assert weapon in together
