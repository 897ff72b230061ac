"""CM004 straggler-rank: fix the straggler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.ranks import GetRun, check_of, cost_us, of_code

from traceopt.api import analyze
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
        assert finding.shares_cause_with == ["CM001", "CM003"]

    @pytest.mark.parametrize(
        ("scenario", "options"),
        [
            ("straggler", {"fixed": True}),
            ("exposed_allreduce", {}),
            ("slow_collective", {}),
            ("load_imbalance", {}),
        ],
    )
    def test_silent_where_nobody_is_late(self, all_ranks: GetRun, scenario: str, options: dict[str, Any]) -> None:
        _, result = all_ranks(scenario, **options)
        assert of_code(result, "CM004") == []
        assert check_of(result, "CM004").status == "passed"


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
        (finding,) = of_code(analyze(self.folder(tmp_path, log_us=2_000, compute_us=1_000), debug=True), "CM004")
        assert finding.saving is not None
        assert finding.saving.est_us == pytest.approx(2_000, rel=0.02)
        assert "At most the 2.0 ms that the straggler spends more" in finding.saving.basis

    def test_ranks_in_step(self, tmp_path: Path) -> None:
        result = analyze(self.folder(tmp_path, log_us=0.0), debug=True)
        assert check_of(result, "CM004").status == "passed"
