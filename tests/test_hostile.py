"""A trace whose names attack: they reach the document. tests/reports/ has every format of a document that attacks."""

from __future__ import annotations

import orjson
import pytest
from browser_pages import OpenPage
from support.traces import GetExample

from fixtures.hostile import HOSTILE, hostile_trace
from traceopt.api import analyze
from traceopt.reports.html.page import render_html
from traceopt.result.document import Result

# What a scenario shows in its report: idle GPU, communication, no GPU at all, no memory, nothing to fix.
SCENARIOS = ("five_faults", "exposed_allreduce", "cpu_only", "launch_bound", "memory_pressure", "healthy", "cold_start")


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


def test_json(hostile: Result) -> None:
    """The names are data here: kept whole, and escaped so that no control character is in the bytes."""
    data = hostile.to_json()
    assert Result.from_json(data) == hostile
    assert [byte for byte in data if byte < 0x20 and byte != 0x0A] == []
    assert orjson.loads(data)["schema_version"] == hostile.schema_version


def test_html_is_as_long_as_for_friendly_names(hostile: Result, example: GetExample) -> None:
    """A name of 3000 characters is cut, not copied into every cell."""
    friendly = render_html(example("five_faults").result, static=True)
    assert len(render_html(hostile, static=True)) < 3 * len(friendly)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_reports_are_quiet(example: GetExample, open_report: OpenPage, scenario: str) -> None:
    """No request, no console line, no error; complete without a script's help."""
    result = example(scenario).result
    page = open_report(result, static=scenario != "five_faults", figures=True)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    shown = page.inner_text("body")
    for finding in result.findings:
        assert finding.title in shown


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
