"""Rules that compare ranks: the late one is named with its cause and line, whatever the clocks; work is balanced."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from support.ranks import GetRun, check_of, facts_of_rank, of_code

from fixtures.generate import generate, generate_ranks
from fixtures.real_traces import TRACES
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.ranks.rank_summary import summarize
from traceopt.analyzer.ranks.run_facts import RunFacts
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.api import analyze
from traceopt.reports.text.markdown import render_markdown
from traceopt.reports.text.terminal import render_terminal
from traceopt.result.document import Result


def terminal(result: Result) -> str:
    return render_terminal(result, width=100, color=False, unicode=True)


class TestSlowCollective:
    """CM003 is a guess from one rank; with all ranks it is measured whether one is late."""

    def test_ranks_that_are_in_step_have_a_slow_link(self, all_ranks: GetRun) -> None:
        _, result = all_ranks("slow_collective")
        (finding,) = of_code(result, "CM003")
        assert finding.title == "Find the slow link"
        assert finding.why.endswith("So the link or its settings are slow.")
        assert finding.saving is not None
        assert "one rank" not in finding.saving.basis
        assert (finding.impact, finding.confidence) == ("high", "medium")
        assert finding.saving.low_us == pytest.approx(0.4 * finding.saving.est_us)
        assert [row.code for row in result.plan] == ["CM001", "CM003"]  # a search for the cause comes after fixes
        assert check_of(result, "CM003").reason == finding.why

    def test_one_of_two_ranks_does_not_tell(self, all_ranks: GetRun, tmp_path: Path) -> None:
        """Also for a file that the user named: all outputs say that the other is missing."""
        traces, _ = all_ranks("slow_collective")
        result = analyze(str(traces[0].write(tmp_path / "trace.json")))
        (finding,) = of_code(result, "CM003")
        assert finding.why.endswith("for it. Their traces tell which rank is late, if any.")
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
        codes = ["LB002", "OP001", "HS004", "DL003"]
        assert [row.code for row in result.plan] == codes
        assert result.combined is not None
        assert (result.combined.codes, result.combined.step_us_after) == (codes, result.plan[-1].step_us_after)
        assert [finding.code for _, finding in result.planned] == codes
        assert "The ranks take" not in terminal(result)  # the only step begins with the recording of each rank

    @pytest.mark.real_traces
    def test_two_ranks_are_late_together(self) -> None:
        """Rank 7 is last at the first collective, because its recording starts last."""
        result = analyze(str(TRACES / "public" / "dlrm_v100x8"))
        (finding,) = of_code(result, "CM004")
        assert (finding.title, finding.ranks) == ("Fix the stragglers: ranks 4 and 5", [4, 5])
        (wait,) = [row.us_per_step for row in finding.evidence if row.what == "Waiting for ranks 4 and 5"]
        assert {row.waited_for_us for row in result.ranks if row.rank in (4, 5)} == {wait}, "as the table of ranks says"
        assert finding.saving is not None
        assert 1_200 < finding.saving.est_us < 1_600


class TestWhatCannotBeCompared:
    CODES = ("CM004", "TQ011")

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
        summary = summarize(facts_of_rank(generate_ranks("straggler", steps=2)[0], tmp_path))
        assert RunFacts([summary, summary]).incomparable == "Two traces are from the same rank."

    def test_ranks_without_collectives(self, tmp_path: Path) -> None:
        for trace in generate_ranks("straggler", steps=2):
            kept = [e for e in trace.events if "nccl" not in e["name"].lower()]
            trace.document["traceEvents"] = kept
            trace.write(tmp_path / f"{trace.rank}.json")
        (check,) = (one for one in analyze(str(tmp_path), debug=True).checks if one.code == "CM004")
        assert "no collective in common" in check.reason


def test_summaries_are_small(tmp_path: Path) -> None:
    """A few numbers for each step and collective, not the trace."""
    import pickle

    trace = generate_ranks("straggler")[0]
    facts = facts_of_rank(trace, tmp_path)
    summary = summarize(facts)
    assert len(pickle.dumps(summary)) < 0.02 * len(trace.to_bytes())
    assert len(summary.collectives) == 6 * 8  # of all six steps


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
