"""CM005 load-imbalance: give all ranks the same amount of work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.ranks import GetRun, cost_us, facts_of_rank, of_code

from traceopt.analyzer.ranks.rank_summary import summarize
from traceopt.analyzer.ranks.run_facts import RunFacts
from traceopt.rules.catalogue.cm005_load_imbalance import LoadImbalance


class TestImbalance:
    def test_fires_at_the_excess_over_the_mean(self, all_ranks: GetRun) -> None:
        traces, result = all_ranks("load_imbalance")
        (finding,) = of_code(result, "CM005")
        saving = finding.saving
        assert saving is not None
        assert saving.low_us <= cost_us(traces) <= saving.high_us * 1.05
        assert saving.est_us == pytest.approx(saving.high_us / 2, rel=0.1)  # of two ranks
        assert finding.ranks == [1]
        assert finding.confidence == "high"

    def test_is_unsure_where_threads_fight_for_cores(self, all_ranks: GetRun, tmp_path: Path) -> None:
        traces, _ = all_ranks("load_imbalance")
        ranks = [replace(summarize(facts_of_rank(trace, tmp_path)), free_cores=trace.rank == 0) for trace in traces]
        (finding,) = LoadImbalance().check_run(RunFacts(ranks))
        assert finding.finding.confidence == "low"
        assert "the threads of all ranks fit on the CPU cores" in finding.finding.fix.text

    @pytest.mark.parametrize("options", [{"fixed": True}, {"slow_rank_batch": 0}])
    def test_silent_on_even_ranks(self, all_ranks: GetRun, options: dict[str, Any]) -> None:
        assert of_code(all_ranks("load_imbalance", **options)[1], "CM005") == []

    def test_a_late_rank_is_no_imbalance(self, all_ranks: GetRun) -> None:
        assert of_code(all_ranks("straggler")[1], "CM005") == []
