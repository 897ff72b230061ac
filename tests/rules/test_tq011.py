"""TQ011 clock-skew: synchronize the machines' clocks."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.ranks import GetRun, check_of, facts_of_rank

from traceopt.analyzer.ranks.rank_summary import summarize
from traceopt.analyzer.ranks.run_facts import RunFacts


class TestClocks:
    def test_fires_on_skew_and_removes_it(self, all_ranks: GetRun, tmp_path: Path) -> None:
        traces, result = all_ranks("straggler", clock_skew_us=7_000.0)
        (note,) = [note for note in result.quality.notes if note.code == "TQ011"]
        assert "7.0 ms" in note.text
        assert result.quality.verdict == "good"
        ranks = [summarize(facts_of_rank(trace, tmp_path)) for trace in traces]
        assert RunFacts(ranks).clock_offset[1] == pytest.approx(7e6, rel=0.01)

    def test_silent_on_true_clocks(self, all_ranks: GetRun) -> None:
        _, result = all_ranks("straggler")
        assert check_of(result, "TQ011").status == "passed"
