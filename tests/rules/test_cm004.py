"""CM004 straggler-rank: fix the straggler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.ranks import GetRun, check_of, cost_us, facts_of_rank, of_code

from traceopt.analyzer.ranks.rank_summary import summarize
from traceopt.analyzer.ranks.run_facts import RunFacts
from traceopt.api import analyze
from traceopt.reports.words.fixes.fix_cards import cards
from traceopt.rules.catalogue.cm004_straggler_rank import StragglerRank
from traceopt.testing import events as build


class TestStraggler:
    @pytest.mark.parametrize("options", [{}, {"clock_skew_us": 7_000.0}, {"world_size": 4}], ids=["2", "skewed", "4"])
    def test_fires_and_names_the_rank_and_its_cause(self, all_ranks: GetRun, options: dict[str, Any]) -> None:
        traces, result = all_ranks("straggler", **options)
        (finding,) = of_code(result, "CM004")
        saving, late = finding.saving, len(traces) - 1
        assert saving is not None
        assert saving.low_us <= cost_us(traces) <= saving.high_us
        assert saving.est_us == pytest.approx(cost_us(traces), rel=0.15)
        assert finding.ranks == [late]
        assert f"rank {late}" in finding.title
        assert "waiting for data" in finding.why
        assert [str(place) for place in finding.locations] == ["train.py:118"]
        assert finding.shares_cause_with == ["CM001", "CM003", "DL001", "DL005"]

    def test_the_same_wait_has_one_price_and_is_the_headline(self, all_ranks: GetRun) -> None:
        """Overlap hides no late rank, whose own finding is the cause. With 4 ranks, most exposed time is left."""
        _, result = all_ranks("straggler")
        (overlap,), (late,), (loader,) = (of_code(result, code) for code in ("CM001", "CM004", "DL001"))
        assert overlap.saving is None
        assert "waits for later ranks" in overlap.why
        assert result.plan == []
        assert result.findings[0] == late
        waits, rest = result.verdict.split(" per step", 1)
        assert rest.startswith(" for rank 1. It is late because of this: waiting for data.")
        assert late.why.startswith(waits)
        (card,) = [card for card in cards(result) if card.finding == loader]
        assert (card.number, card.instead_of) == (2, [1])

        _, result = all_ranks("straggler", world_size=4)
        assert result.plan[0].finding == of_code(result, "CM001")[0].id
        assert "The other ranks wait" not in result.verdict

    @pytest.mark.parametrize(
        ("scenario", "options"), [("straggler", {"fixed": True}), ("exposed_allreduce", {}), ("slow_collective", {})]
    )
    def test_silent_where_nobody_is_late(self, all_ranks: GetRun, scenario: str, options: dict[str, Any]) -> None:
        _, result = all_ranks(scenario, **options)
        assert of_code(result, "CM004") == []
        assert check_of(result, "CM004").status == "passed"

    def test_says_why_another_rank_has_the_longest_step(self, all_ranks: GetRun, tmp_path: Path) -> None:
        """The table of ranks shows it, and a late rank waits less."""
        traces, _ = all_ranks("straggler")
        early, late = (summarize(facts_of_rank(trace, tmp_path)) for trace in traces)
        longer = replace(early, step_ns=late.step_ns + 1e6)
        found = [
            one.finding.why
            for run in ((early, late), (longer, late))
            for one in StragglerRank().check_run(RunFacts([*run]))
        ]
        assert ["The step of rank 0 is longer because it waits longer in collectives" in why for why in found] == [
            False,
            True,
        ]


class TestWithoutAGpu:
    """Ranks on CPUs, with gloo: rank 0 logs for 3 ms before each all-reduce."""

    def folder(self, tmp_path: Path, log_us: float, compute_us: float = 0.0) -> str:
        """`compute_us`: how much longer the late rank computes."""
        for rank in (0, 1):
            events = []
            for start in range(0, 40_000, 10_000):
                more_us = compute_us if rank == 0 else 0.0
                late_us = log_us + more_us if rank == 0 else 0.0
                events += [
                    build.annotation(f"ProfilerStep#{start // 10_000}", start, 10_000),
                    build.python("train.py(5): train", start, 10_000),
                    build.op("aten::mm", start, 2_000 + more_us),
                    build.python("logging/__init__.py(1): info", start + 2_000 + more_us, late_us - more_us),
                    build.op("c10d::allreduce_", start + 2_000 + late_us, 10),
                    build.annotation("gloo:all_reduce", start + 2_020 + late_us, 3_980 - late_us, 7),
                    build.op("aten::mm", start + 6_000, 4_000),
                ]
            header = {"distributedInfo": {"backend": "gloo", "rank": rank, "world_size": 2}}
            (tmp_path / f"rank{rank}.json").write_bytes(
                build.document(events, baseTimeNanoseconds=1_700_000_000_000_000_000, **header)
            )
        return str(tmp_path)

    def test_the_late_rank_and_its_line(self, tmp_path: Path) -> None:
        (finding,) = of_code(analyze(self.folder(tmp_path, log_us=3_000), debug=True), "CM004")
        assert finding.saving is not None
        assert finding.saving.est_us == pytest.approx(0.95 * 3_000, rel=0.05)
        assert (finding.ranks, [str(place) for place in finding.locations]) == ([0], ["train.py:5"])
        assert "logging" in finding.why

    def test_no_more_is_saved_than_the_rank_does_more(self, tmp_path: Path) -> None:
        """The rank is 3 ms late, of which its logging is 2; the rest is another 1 ms of compute."""
        findings = of_code(analyze(self.folder(tmp_path, log_us=2_000, compute_us=1_000), debug=True), "CM004")
        (finding,) = (one for one in findings if one.title.startswith("Fix the straggler"))
        assert finding.saving is not None
        assert finding.saving.est_us == pytest.approx(2_000, rel=0.02)
        assert "At most the 2.0 ms that the straggler spends more" in finding.saving.basis

    def test_ranks_in_step(self, tmp_path: Path) -> None:
        result = analyze(self.folder(tmp_path, log_us=0.0), debug=True)
        assert check_of(result, "CM004").status == "passed"


class TestUnevenWork:
    def test_fires_at_the_excess_over_the_mean(self, all_ranks: GetRun) -> None:
        traces, result = all_ranks("load_imbalance")
        (finding,) = of_code(result, "CM004")
        saving = finding.saving
        assert saving is not None
        assert saving.low_us <= cost_us(traces) <= saving.high_us * 1.05
        assert saving.est_us == pytest.approx(saving.high_us / 2, rel=0.1)  # of two ranks
        assert finding.ranks == [1]
        assert finding.confidence == "high"

    def test_is_unsure_where_threads_fight_for_cores(self, all_ranks: GetRun, tmp_path: Path) -> None:
        traces, _ = all_ranks("load_imbalance")
        ranks = [replace(summarize(facts_of_rank(trace, tmp_path)), free_cores=trace.rank == 0) for trace in traces]
        (finding,) = StragglerRank().check_run(RunFacts(ranks))
        assert finding.finding.confidence == "low"
        assert "the threads of all ranks fit on the CPU cores" in finding.finding.fix.text

    def test_a_gpu_that_takes_longer_for_the_same_work(self, all_ranks: GetRun, tmp_path: Path) -> None:
        traces, _ = all_ranks("load_imbalance")
        ranks = [summarize(facts_of_rank(trace, tmp_path)) for trace in traces]
        even = RunFacts([replace(rank, blocks=ranks[0].blocks) for rank in ranks])
        found = [one.finding for run in (RunFacts(ranks), even) for one in StragglerRank().check_run(run)]
        assert [(one.title, one.confidence) for one in found] == [
            ("Give all ranks the same amount of work", "high"),
            ("Find out why the GPU of rank 1 is slower", "medium"),
        ]

    @pytest.mark.parametrize("options", [{"fixed": True}, {"slow_rank_batch": 0}])
    def test_silent_on_even_ranks(self, all_ranks: GetRun, options: dict[str, Any]) -> None:
        assert of_code(all_ranks("load_imbalance", **options)[1], "CM004") == []

    def test_a_late_rank_is_no_imbalance(self, all_ranks: GetRun) -> None:
        assert [one.title for one in of_code(all_ranks("straggler")[1], "CM004")] == ["Fix the straggler: rank 1"]
