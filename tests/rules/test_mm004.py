"""MM004: reserved memory that holds no tensor, in a trace or a memory snapshot."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceopt
from fixtures.generate import generate
from fixtures.memory_snapshots import TABLE_LINE, training
from traceopt.rules.catalogue.mm004_fragmentation import Fragmentation
from traceopt.testing import answer


@pytest.mark.parametrize("scenario", ["healthy", "slow_loader", "cuda_malloc"])
def test_silent_without_fragmentation(scenario: str) -> None:
    assert answer(Fragmentation, generate(scenario).to_bytes())[1] == []


def test_fires_on_the_peaks_of_a_trace() -> None:
    _, (finding,) = answer(Fragmentation, generate("healthy", reserved_bytes=36_000_000_000).to_bytes())
    assert (finding.saving, finding.confidence) == (None, "low")
    assert "33.5 GiB of 39.4 GiB" in finding.why


def test_a_cache_on_an_empty_device_does_no_harm() -> None:
    assert answer(Fragmentation, generate("healthy", reserved_bytes=12_000_000_000).to_bytes())[1] == []


def test_a_snapshot_names_the_line_that_keeps_segments_in_use(tmp_path: Path) -> None:
    generate("healthy", reserved_bytes=36_000_000_000).write(tmp_path / "trace.json.gz")
    training("fragmented").write(tmp_path / "snapshot.pickle")
    (finding,) = (one for one in traceopt.analyze(str(tmp_path)).findings if one.code == "MM004")
    assert finding.confidence == "medium"
    assert "failed although" in finding.why
    assert finding.locations[0].line == TABLE_LINE
    assert finding.shares_cause_with == ["MM008"]
