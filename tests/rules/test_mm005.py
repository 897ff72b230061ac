"""MM005: memory that every step leaves behind, in a trace, a memory snapshot or a whole run."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceopt
from fixtures.generate import generate
from fixtures.memory_snapshots import HISTORY_LINE, training
from traceopt.api import analyze
from traceopt.result.document import Check
from traceopt.result.finding import Finding
from traceopt.result.words.quantities import size
from traceopt.rules.catalogue.mm005_memory_growth import MemoryGrowth
from traceopt.testing import answer

LEAK = 8 << 20


def asked(**job: object) -> tuple[Check, list[Finding]]:
    """The answer to the healthy job with some fields changed."""
    return answer(MemoryGrowth, generate("healthy", **job).to_bytes())


@pytest.mark.parametrize("scenario", ["healthy", "slow_loader", "cuda_malloc"])
def test_silent_without_a_leak(scenario: str) -> None:
    assert answer(MemoryGrowth, generate(scenario).to_bytes())[1] == []


def test_fires_and_names_the_operator_whose_results_stay() -> None:
    _, (finding,) = asked(leak_bytes=LEAK)
    assert size(LEAK) in finding.why
    assert finding.evidence[1].what == "aten::clone"
    assert [str(place) for place in finding.locations] == ["train.py:88"]
    assert "detach" in finding.fix.text.lower()


def test_needs_growth_in_every_step() -> None:
    assert asked(leak_bytes=1000)[1] == []


def test_says_when_steps_are_too_few() -> None:
    assert "Too few" in asked(leak_bytes=LEAK, steps=3)[0].reason


def test_a_snapshot_names_the_line(tmp_path: Path) -> None:
    result = traceopt.analyze(str(training("history").write(tmp_path / "snapshot.pickle")))
    (finding,) = (one for one in result.findings if one.code == "MM005")
    assert finding.locations[0].line == HISTORY_LINE
    assert finding.confidence == "high"


def test_one_finding_from_a_trace_and_a_snapshot(tmp_path: Path) -> None:
    """The lines of the snapshot are exact, so they stand for the operators of the trace."""
    generate("healthy", leak_bytes=LEAK).write(tmp_path / "trace.json.gz")
    training("history").write(tmp_path / "snapshot.pickle")
    (finding,) = (one for one in analyze(str(tmp_path)).findings if one.code == "MM005")
    assert "In the snapshot, a typical step leaves" in finding.why
    assert f"leaves {size(LEAK)} more" in finding.why
    assert finding.locations[0].line == HISTORY_LINE
