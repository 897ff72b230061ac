"""Rules that compare ranks: the late one is named with its cause and line, whatever the clocks; work is balanced."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from msgspec.structs import replace

from fixtures.generate import GeneratedTrace, generate, generate_ranks
from fixtures.real_traces import TRACES
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.ranks.rank_summary import summarize
from traceopt.analyzer.ranks.run_facts import RunFacts
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.api import analyze
from traceopt.reports.text.markdown import render_markdown
from traceopt.reports.text.terminal import render_terminal
from traceopt.result.document import Check, Result
from traceopt.result.finding import Finding
from traceopt.rules.catalogue.cm005_load_imbalance import LoadImbalance
from traceopt.testing import events as build

Run = tuple[list[GeneratedTrace], Result]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """`run(scenario, **job)`: the traces of all ranks, and the result of their folder; once each."""
    known: dict[str, Run] = {}

    def get(scenario: str, **options: Any) -> Run:
        key = f"{scenario} {sorted(options.items())}"
        if key not in known:
            folder = tmp_path_factory.mktemp(scenario)
            traces = generate_ranks(scenario, **options)
            for trace in traces:
                trace.write(folder / f"host_{trace.rank}.pt.trace.json")
            known[key] = traces, analyze(str(folder), debug=True)
        return known[key]

    return get


def of_code(result: Result, code: str) -> list[Finding]:
    return [finding for finding in result.findings if finding.code == code]


def check_of(result: Result, code: str) -> Check:
    (check,) = [check for check in result.checks if check.code == code]
    return check


def terminal(result: Result) -> str:
    return render_terminal(result, width=100, color=False, unicode=True)


def cost_us(traces: list[GeneratedTrace]) -> float:
    planted = traces[0].planted
    return median(planted.step_us) - median(planted.fixed_step_us)


def facts_of(trace: GeneratedTrace, folder: Path) -> Facts:
    path = trace.write(folder / "trace.json")
    with path.open("rb") as stream:
        return Facts(read_trace(stream, path.name))


class TestStraggler:
    @pytest.mark.parametrize("options", [{}, {"clock_skew_us": 7_000.0}, {"world_size": 4}], ids=["2", "skewed", "4"])
    def test_names_the_rank_and_its_cause(self, run: Callable[..., Run], options: dict[str, Any]) -> None:
        traces, result = run("straggler", **options)
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
    def test_silent_where_nobody_is_late(self, run: Callable[..., Run], scenario: str, options: dict[str, Any]) -> None:
        _, result = run(scenario, **options)
        assert of_code(result, "CM004") == []
        assert check_of(result, "CM004").status == "passed"


class TestSlowCollective:
    """CM003 is a guess from one rank; with all ranks it is measured whether one is late."""

    def test_ranks_that_are_in_step_have_a_slow_link(self, run: Callable[..., Run]) -> None:
        _, result = run("slow_collective")
        (finding,) = of_code(result, "CM003")
        assert finding.title == "Find the slow link"
        assert finding.why.endswith("So the link or its settings are slow.")
        assert finding.saving is not None
        assert "one rank" not in finding.saving.basis
        assert (finding.impact, finding.confidence) == ("high", "medium")
        assert finding.saving.low_us == pytest.approx(0.4 * finding.saving.est_us)
        assert [row.code for row in result.plan] == ["CM001"]  # a search for the cause comes after fixes
        assert check_of(result, "CM003").reason == finding.why

    def test_one_of_two_ranks_does_not_tell(self, run: Callable[..., Run], tmp_path: Path) -> None:
        """Also for a file that the user named: all outputs say that the other is missing."""
        traces, _ = run("slow_collective")
        result = analyze(str(traces[0].write(tmp_path / "trace.json")))
        (finding,) = of_code(result, "CM003")
        assert finding.why.endswith("for it, so it is not known whether one of them is late.")
        missing = "Rank 1 of 2 is missing: no trace was read for it"
        assert result.warnings == [missing]
        reports = (terminal(result), render_markdown(result), result.to_html())
        assert all(missing in text for text in reports)

    @pytest.mark.real_traces
    def test_late_ranks_are_no_slow_link(self) -> None:
        """Rank 0 is in small collectives for 5.5 ms, in which it waits for ranks that come later."""
        result = analyze(str(TRACES / "public" / "dlrm_v100x8"))
        (finding,) = of_code(result, "CM003")
        assert (finding.saving, finding.impact) == (None, "info")
        assert "Rank 0 waits 5.4 ms for ranks that enter its collectives later" in finding.why
        (straggler,) = of_code(result, "CM004")
        assert straggler.saving is not None
        assert result.step.typical_us is not None
        assert straggler.saving.share == pytest.approx(straggler.saving.est_us / result.step.typical_us, abs=1e-5)
        (launches,) = of_code(result, "LB002")
        assert "exchanges tensors whose sizes may vary (all_to_all)" in launches.fix.text
        codes = ["LB002", "OP001", "CM001"]
        assert [row.code for row in result.plan] == codes
        assert result.combined is not None
        assert (result.combined.codes, result.combined.step_us_after) == (codes, result.plan[-1].step_us_after)
        assert [finding.code for _, finding in result.planned] == codes
        assert "The ranks take" not in terminal(result)  # the only step begins with the recording of each rank

    @pytest.mark.real_traces
    def test_two_ranks_are_late_together(self) -> None:
        """Rank 7 is last at the first collective, because its recording starts last."""
        (finding,) = of_code(analyze(str(TRACES / "public" / "dlrm_v100x8")), "CM004")
        assert (finding.title, finding.ranks) == ("Fix the stragglers: ranks 4 and 5", [4, 5])
        assert finding.saving is not None
        assert 1_200 < finding.saving.est_us < 1_600


class TestImbalance:
    def test_prices_the_excess_over_the_mean(self, run: Callable[..., Run]) -> None:
        traces, result = run("load_imbalance")
        (finding,) = of_code(result, "CM005")
        saving = finding.saving
        assert saving is not None
        assert saving.low_us <= cost_us(traces) <= saving.high_us * 1.05
        assert saving.est_us == pytest.approx(saving.high_us / 2, rel=0.1)  # of two ranks
        assert finding.ranks == [1]
        assert finding.confidence == "high"

    def test_is_unsure_where_threads_fight_for_cores(self, run: Callable[..., Run], tmp_path: Path) -> None:
        traces, _ = run("load_imbalance")
        ranks = [replace(summarize(facts_of(trace, tmp_path)), free_cores=trace.rank == 0) for trace in traces]
        (finding,) = LoadImbalance().check_run(RunFacts(ranks))
        assert finding.finding.confidence == "low"
        assert "the threads of all ranks fit on the CPU cores" in finding.finding.fix.text

    @pytest.mark.parametrize("options", [{"fixed": True}, {"slow_rank_batch": 0}])
    def test_silent_on_even_ranks(self, run: Callable[..., Run], options: dict[str, Any]) -> None:
        assert of_code(run("load_imbalance", **options)[1], "CM005") == []

    def test_a_late_rank_is_no_imbalance(self, run: Callable[..., Run]) -> None:
        assert of_code(run("straggler")[1], "CM005") == []


class TestClocks:
    def test_skew_is_told_and_removed(self, run: Callable[..., Run], tmp_path: Path) -> None:
        traces, result = run("straggler", clock_skew_us=7_000.0)
        (note,) = [note for note in result.quality.notes if note.code == "TQ011"]
        assert "7.0 ms" in note.text
        assert result.quality.verdict == "good"
        ranks = [summarize(facts_of(trace, tmp_path)) for trace in traces]
        assert RunFacts(ranks).clock_offset[1] == pytest.approx(7e6, rel=0.01)

    def test_true_clocks(self, run: Callable[..., Run]) -> None:
        _, result = run("straggler")
        assert check_of(result, "TQ011").status == "passed"


class TestWhatCannotBeCompared:
    CODES = ("CM004", "CM005", "TQ011")

    def checks(self, result: Result) -> set[tuple[str, str]]:
        return {(check.status, check.reason) for check in result.checks if check.code in self.CODES}

    def test_one_rank_of_several(self, tmp_path: Path) -> None:
        trace = generate_ranks("straggler", steps=2)[0]
        ((status, reason),) = self.checks(analyze(str(trace.write(tmp_path / "a.json")), debug=True))
        assert status == "not_checked"
        assert "all ranks" in reason

    def test_a_run_of_one_rank(self, tmp_path: Path) -> None:
        trace = generate_ranks("healthy", steps=2, layers=1)[0]
        found = self.checks(analyze(str(trace.write(tmp_path / "a.json")), debug=True))
        assert found == {("not_applicable", "The run has one rank.")}

    def test_twice_the_same_rank(self, tmp_path: Path) -> None:
        """`analyze` takes them for two runs."""
        summary = summarize(facts_of(generate_ranks("straggler", steps=2)[0], tmp_path))
        assert RunFacts([summary, summary]).incomparable == "Two traces are from the same rank."

    def test_ranks_without_collectives(self, tmp_path: Path) -> None:
        for trace in generate_ranks("straggler", steps=2):
            kept = [e for e in trace.events if "nccl" not in e["name"].lower()]
            trace.document["traceEvents"] = kept
            trace.write(tmp_path / f"{trace.rank}.json")
        reasons = {
            check.reason for check in analyze(str(tmp_path), debug=True).checks if check.code in ("CM004", "CM005")
        }
        assert all("no collective in common" in reason for reason in reasons)


def test_summaries_are_small(tmp_path: Path) -> None:
    """A few numbers for each step and collective, not the trace."""
    import pickle

    trace = generate_ranks("straggler")[0]
    facts = facts_of(trace, tmp_path)
    summary = summarize(facts)
    assert len(pickle.dumps(summary)) < 0.02 * len(trace.to_bytes())
    assert len(summary.collectives) == 6 * 8  # of all six steps


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


@pytest.mark.parametrize(
    ("change", "free"),
    [
        ({}, True),
        ({"environment": {"cpu_affinity": 4, "threads": 8}}, False),
        ({"environment": {"cpu_affinity": 8, "threads": 2, "local_world_size": 8}}, False),
        ({"ledger": {"step_us": [1.0], "core_wait": {"us": 5.0, "cpu_us": 95.0, "wall_us": 100.0}}}, False),
        ({"ledger": {"step_us": [1.0]}}, False),
        ({"environment": {}}, False),
    ],
)
def test_cores_are_free_if_the_run_says_so(change: dict[str, Any], free: bool) -> None:
    document = generate("cpu_only").document
    own = {
        "environment": {"cpu_affinity": 8, "threads": 8},
        "ledger": {"step_us": [1.0], "core_wait": {"us": 1.0, "cpu_us": 99.0, "wall_us": 100.0}},
    }
    stream = io.BytesIO(json.dumps({**document, "traceopt": own | change}).encode())
    assert summarize(Facts(read_trace(stream, "trace.json"))).free_cores == free
