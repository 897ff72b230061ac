"""LB010 skipped-cuda-graph: let compiled code run as CUDA graphs."""

from __future__ import annotations

from support.compiled import compilation, fixed, training, with_notes
from support.findings import found


class TestSkippedGraphs:
    def test_fires_with_the_reason_and_the_fix(self) -> None:
        skipped = compilation(0, cudagraph_skip_reason="skipping cudagraphs due to mutated inputs (1 instances)")
        (finding,) = found("LB010", with_notes(training(pieces=1), {"compilations": [skipped]}))
        assert "mutated inputs" in finding.why
        assert "in place" in finding.fix.text

    def test_skips_that_were_only_counted(self) -> None:
        notes = fixed() | {"inductor": {"cudagraph_skips": 2}}
        (finding,) = found("LB010", with_notes(training(pieces=1), notes))
        assert "2 compilations" in finding.why

    def test_recordings_that_repeat(self) -> None:
        notes = fixed() | {"graphs_recorded": {"recorded": 12, "again": 9}}
        (finding,) = found("LB010", with_notes(training(pieces=1), notes))
        assert "9 repeat" in finding.why

    def test_silent_if_few_recordings_repeat(self) -> None:
        notes = fixed() | {"graphs_recorded": {"recorded": 12, "again": 2}}
        assert found("LB010", with_notes(training(pieces=1), notes)) == []
