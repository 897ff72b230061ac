"""A damaged file has the headline of the whole one, or every output says why it may not; a whole file has no caveat."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from support.traces import GENERATED, REAL, TWINS, AnalyzedTrace, over

from fixtures.damage import LOSSES, Variant, Whole, misleading, variants
from fixtures.real_traces import SHARED
from traceopt.api import analyze
from traceopt.errors import InputError
from traceopt.reports.agent import words
from traceopt.reports.agent.report import render_agent
from traceopt.reports.ci.github import render_github
from traceopt.reports.ci.sarif import render_sarif
from traceopt.reports.html.page import render_html
from traceopt.reports.text.markdown import render_markdown
from traceopt.reports.text.terminal import render_concise, render_terminal
from traceopt.result.document import Result
from traceopt.testing.events import annotation, document

FIXTURES = Path(__file__).parents[1] / "fixtures" / "traces"
SMALL = sorted(path for path in FIXTURES.rglob("*.json.gz") if path.stat().st_size < 100_000)
FAULTS = SHARED / "faults" / "traces"
LACKING = ("aph_a4000", "cropped", "sampled", "trace_filter", "truncated")  # files whose authors removed events


@cache
def whole(path: Path) -> tuple[Whole, Result]:
    return Whole(path.read_bytes()), analyze(str(path), debug=True)


@pytest.mark.parametrize(
    "variant", [*variants(6 * len(LOSSES), 36, LOSSES)], ids=lambda one: f"{one.kind}-{one.number}"
)
def test_the_headline_is_right_or_its_caveat_says_why_not(variant: Variant, tmp_path: Path) -> None:
    text, right = whole(SMALL[variant.number // len(LOSSES) * 7 % len(SMALL)])
    path = tmp_path / "damaged.json"
    path.write_bytes(variant.of(text))
    try:
        assert misleading(right, analyze(str(path), debug=True)) == ""
    except InputError:
        assert "packed" in variant.kind or variant.kind == "cut_off"


@pytest.mark.real_traces
@pytest.mark.parametrize("name", ["hole-9", "noise-5", "gz-member-missing"])
def test_every_output_says_that_a_part_is_lost(name: str) -> None:
    result = analyze(str(FAULTS / f"{name}.json.gz"))
    caveat = result.quality.caveat or ""
    assert caveat.startswith("Part of the file is lost")
    assert result.verdict.startswith(caveat)
    assert "TQ003" in {note.code for note in result.quality.notes}
    start = "Part of the file is lost"
    outputs = (
        render_terminal(result, width=80, color=False, unicode=True),
        render_concise(result),
        render_markdown(result),
        render_github(result),
        render_sarif(result),
        render_agent(result),
        render_html(result),
    )
    assert [start in output for output in outputs] == [True] * len(outputs)
    assert words.limit(result) is None


def test_a_hole_is_as_large_as_the_arrows_that_are_lost_in_it(tmp_path: Path) -> None:
    text, _ = whole(FIXTURES / "five_faults.json.gz")
    arrows = text.text.index(b'"cat":"ac2g"')
    path = tmp_path / "damaged.json"
    path.write_bytes(text.text[:arrows] + text.text[-len(text.text) // 20 :])
    result = analyze(str(path), debug=True)
    assert "% of its events" in (result.quality.caveat or "")
    assert any("at least" in note.text for note in result.quality.notes if note.code == "TQ003")


@over(GENERATED, TWINS, REAL)
def test_a_whole_file_lacks_nothing(trace: AnalyzedTrace) -> None:
    if any(name in str(trace.path) for name in LACKING):
        return
    assert "of the file is lost" not in trace.result.verdict
    assert not trace.result.verdict.startswith("The file lacks")


@pytest.mark.real_traces
def test_a_cut_rank_is_named_and_its_own_findings_are_left_out() -> None:
    result = analyze(str(FAULTS / "ranks"))
    for rank in (101, 102):
        assert any(f"rank{rank}." in warning and "cannot be judged" in warning for warning in result.warnings)
        assert all(rank not in finding.ranks for finding in result.findings)
    assert "EF007" not in {finding.code for finding in result.findings}


def test_a_cpu_run_without_operators_says_so(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(document([annotation(f"ProfilerStep#{step}", 1e4 * step, 9e3) for step in range(4)]))
    assert str(analyze(str(path)).verdict).startswith("This file lacks the CPU operators")
