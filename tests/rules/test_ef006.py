"""The start-up of a run: EF006, its section, its share of the run, and what odd recordings make of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.findings import document_of
from support.recorded_facts import answer, finding, generated, reason

from fixtures.generate import generate_ranks
from traceopt.api import analyze
from traceopt.reports.html.page import render_html
from traceopt.reports.words.companions.sections import companion_lines, companion_sections
from traceopt.result.finding import value_order

STEP_US = [2_000_000.0] + [10_000.0] * 39


def line(number: int, us: float, what: str | None = None) -> dict[str, Any]:
    return {"file": "train.py", "line": number, "function": "main", "what": what, "us": us}


def started(us: float = 50e6, **other: Any) -> dict[str, Any]:
    """A run whose first step ends after this time."""
    parts = [
        {"part": "imports", "us": 0.2 * us, "lines": [line(3, 0.15 * us, "torch"), line(4, 0.05 * us, "pandas")]},
        {"part": "compilation", "us": 0.6 * us, "lines": [line(43, 0.6 * us)]},
        {"part": "other", "us": 0.1 * us, "lines": []},
    ]
    start_up = {"us": us, "python_us": 0.04 * us, "samples": 900, "interval_us": 5e4, "cost_us": 9e4, "parts": parts}
    end = {"us": 0.0, "eval_us": 0.0, "save_us": 0.0, "early": False}
    return {"start_up": start_up, "ledger.step_us": STEP_US, "ledger.fetch_us": None, "ledger.end": end} | other


def early(**other: Any) -> dict[str, Any]:
    return started() | {"ledger.end": {"us": 0.0, "eval_us": 0.0, "save_us": 0.0, "early": True}} | other


def test_fires_with_the_large_parts_their_lines_and_what_to_do() -> None:
    found = finding(generated("healthy", change=started()), "EF006")
    assert found.why == (
        "Start-up takes 50.0 s, 99% of the run: compilation 30.0 s (train.py:43), "
        "imports 10.0 s (torch, train.py:3, 7.5 s)."
    )
    assert [str(location) for location in found.locations] == ["train.py:43"]
    assert "TORCHINDUCTOR_CACHE_DIR" in found.fix.text
    assert "Import only the modules" in found.fix.text
    assert [(row.what, row.detail) for row in found.evidence] == [
        ("Compilation", "30.0 s"),
        ("Imports", "10.0 s"),
        ("Other code", "5.0 s"),
    ]
    assert found.saving is None
    assert found.confidence == "medium"


@pytest.mark.parametrize(
    "change",
    [early(), started() | {"ledger.end": None}, started() | {"failure": {"exit_code": 1, "signal": None, "steps": 40}}],
    ids=["stopped", "killed", "failed"],
)
def test_a_run_that_was_cut_short_gets_no_share(change: dict[str, Any]) -> None:
    facts = generated("healthy", change=change)
    found = finding(facts, "EF006")
    assert found.why.startswith("Start-up takes 50.0 s: compilation 30.0 s")
    assert found.why.endswith(" The run was stopped early, so its share of a whole run is not known.")
    assert found.confidence == "low"
    document = document_of(facts)
    assert document.start_up is not None
    assert document.start_up.run_share is None
    assert document.start_up.notable
    [said] = companion_lines(document)
    assert "%" not in said


def test_silent_on_a_short_start_up_or_a_small_part_of_the_run() -> None:
    assert reason(generated("healthy", change=started(20e6)), "EF006", "passed").startswith("Start-up takes 20.0 s, ")
    long = started() | {"ledger.later_steps": 100, "ledger.later_us": 1000e6}
    assert reason(generated("healthy", change=long), "EF006", "passed") == "Start-up takes 50.0 s, 4.8% of the run."
    document = document_of(generated("healthy", change=long))
    assert document.start_up is not None
    assert not document.start_up.notable
    assert companion_lines(document) == []


def test_traces_without_it_are_not_checked() -> None:
    assert "first step was not recorded" in reason(generated("healthy"), "EF006", "not_checked")
    assert document_of(generated("healthy")).start_up is None


def test_the_section_adds_up_and_is_in_the_reports() -> None:
    document = document_of(generated("healthy", change=started()))
    assert document.start_up is not None
    assert sum(part.us for part in document.start_up.parts) == pytest.approx(50e6)
    assert [(part.name, part.us) for part in document.start_up.parts] == [
        ("compilation", 30e6),
        ("imports", 10e6),
        ("other", 5e6),
        ("unsampled", 3e6),
        ("python", 2e6),
    ]
    assert document.whole_run is not None
    parts = {part.name: part for part in document.whole_run.parts}
    assert parts["startup"].us == 50e6, "with the imports before the ledger begins"
    assert [str(place) for place in parts["startup"].locations] == ["train.py:43", "train.py:3"]
    said = (
        "Start-up with the first step takes 50.0 s, 99% of the run: compilation 30.0 s (train.py:43), "
        "imports 10.0 s (torch, train.py:3, 7.5 s), other code 5.0 s."
    )
    assert companion_lines(document) == [said]
    page = render_html(document)
    assert '<h2 id="start-up">Start-up</h2>' in page
    assert "<code>train.py<i>:3</i></code> torch, 7.5 s" in page
    assert 'id="start-up"' not in render_html(replace(document, start_up=None))


def test_it_comes_after_findings_about_the_steps() -> None:
    found = finding(generated("healthy", change=started()), "EF006")
    other = replace(found, code="RH003")
    assert sorted([found, other], key=value_order) == [other, found]


def test_the_slowest_rank_is_shown(tmp_path: Path) -> None:
    """Rank 0 waits for rank 1, so it seems to take longer."""
    for rank, trace in enumerate(generate_ranks("healthy", world_size=2, metadata=True)):
        own = trace.document["traceopt"]
        changed = started(61e6 - rank * 1e6)
        if rank == 0:
            changed["start_up"]["parts"].append({"part": "process_group", "us": 3e6, "lines": []})
        ledger = own["ledger"] | {"step_us": STEP_US, "fetch_us": None, "end": changed["ledger.end"]}
        document = {**trace.document, "traceopt": own | {"start_up": changed["start_up"], "ledger": ledger}}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(document))
    result = analyze([str(tmp_path)])
    assert result.start_up is not None
    assert (result.start_up.rank, result.start_up.us) == (1, 60e6)
    [section] = companion_sections(result)
    assert section.sentences == ["Start-up with the first step takes 60.0 s on rank 1, the slowest, 99% of the run."]
    [section] = companion_sections(replace(result, ranks=result.ranks[:1]))
    assert section.sentences[0].startswith("Start-up with the first step takes 60.0 s, ")


@pytest.mark.parametrize(
    "odd", [None, [], {}, {"us": "1"}, {"us": -1.0, "interval_us": 5e4}, {"us": 1e6}, {"us": 1e99}]
)
def test_odd_recordings_have_no_start_up(odd: Any) -> None:
    facts = generated("healthy", change={"start_up": odd})
    assert facts.captured.start_up is None
    assert answer(facts, "EF006")[0].status == "not_checked"


@pytest.mark.parametrize(
    "parts",
    [None, "imports", [7], [{"part": "imports", "us": 1e9}], [{"part": [], "us": 1.0}], [{"part": "imports"}]],
    ids=["none", "text", "number", "too long", "no name", "no time"],
)
def test_odd_parts_are_left_out(parts: Any) -> None:
    change = started()
    change["start_up"] = change["start_up"] | {"parts": parts}
    known = generated("healthy", change=change).captured.start_up
    assert known is not None
    assert {part.name for part in known.parts} <= {"python", "unsampled"}
    assert sum(part.total_ns for part in known.parts) == known.total_ns


def test_odd_lines_are_left_out() -> None:
    change = started()
    odd = [None, 3, {}, line(0, 1.0), line(3, -1.0), line(3, 1.0) | {"file": ""}, line(5, 1.0) | {"what": 4}]
    change["start_up"] = change["start_up"] | {"parts": [{"part": "imports", "us": 9.0, "lines": odd}]}
    known = generated("healthy", change=change).captured.start_up
    assert known is not None
    [imports] = (part for part in known.parts if part.name == "imports")
    assert [(one.location.line, one.what) for one in imports.lines] == [(5, None)]
