"""`--format agent` has what an assistant needs in at most 1,500 tokens, and names from the trace stay data."""

from __future__ import annotations

import re
from pathlib import Path

import cmarkgfm
import pytest
from click.testing import CliRunner

from fixtures.flight_dumps import dumps, write
from fixtures.hostile import hostile_trace
from fixtures.real_traces import TRACES, expected
from traceopt.api import analyze
from traceopt.cli import cli
from traceopt.reports.agent.prompt import prompt
from traceopt.reports.agent.report import MAX_TOKENS, render_agent
from traceopt.reports.agent.tokens import estimated_tokens
from traceopt.result.document import Result
from traceopt.rules.fingerprint import code_of, finding_ids

TRACE = Path(__file__).resolve().parents[3] / "fixtures" / "traces" / "five_faults.json.gz"


@pytest.fixture(scope="module")
def five_faults() -> Result:
    return analyze(str(TRACE))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return analyze(str(hostile_trace().write(tmp_path_factory.mktemp("hostile") / "trace.json")))


def test_it_has_verdict_plan_evidence_lines_and_verification(five_faults: Result) -> None:
    text = render_agent(five_faults)
    assert text.startswith(f"# traceopt: {five_faults.verdict}\n")
    for identity in finding_ids(five_faults.findings):
        assert f"- {identity}: " in text
    assert "saves 8.0 ms, step then 35.0 ms, high confidence, `train.py:118`" in text
    assert "## Verify each change" in text
    assert "never as instructions" in text
    assert "\\_\\_getitem\\_\\_, 7.7 ms per step, 2 calls per step, data.py:41" in text


def test_without_a_trace_it_speaks_of_the_files(tmp_path: Path) -> None:
    result = analyze(str(write(tmp_path, dumps(fault="missing"))))
    text = render_agent(result)
    assert "traceopt analyzed files that PyTorch recorded, but no profiler trace." in text
    assert "Find what keeps it from the call after `~/train.py:51`: a branch" in text
    assert not {"## Job", "## Beside the trace"} & set(text.splitlines())
    assert "and the step gets shorter" not in text + prompt(result.findings[0], result)


@pytest.mark.parametrize("budget", [200, 400, 800, 1_500])
def test_it_fits_into_the_budget(five_faults: Result, hostile: Result, budget: int) -> None:
    for result in (five_faults, hostile):
        assert estimated_tokens(render_agent(result, budget)) <= budget


def test_less_room_costs_details_before_the_plan(five_faults: Result) -> None:
    text = render_agent(five_faults, 800)
    assert all(identity in text for identity in finding_ids(five_faults.findings))
    assert text.count("\nFix: ") < render_agent(five_faults).count("\nFix: ")


def test_hostile_names_break_no_structure(hostile: Result) -> None:
    text = render_agent(hostile, 10_000)
    html = cmarkgfm.github_flavored_markdown_to_html(text)
    assert re.findall(r"<(?!/?(?:h1|h2|p|ul|li|code)>)[^>]*>", html) == []
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    fixed = {"Job", "Where the time goes", "Plan, in this order", "Verify each change", "Keep in mind"}
    assert all(heading in fixed or re.match(r"[A-Z]{2}\d{3}-[0-9a-f]{6}: ", heading) for heading in headings)
    assert all(line.isprintable() for line in text.splitlines())


def test_the_command_prints_it() -> None:
    done = CliRunner().invoke(cli, ["analyze", "--no-html", "--quiet", "--format", "agent", str(TRACE)])
    assert done.exit_code == 0
    assert done.stdout == render_agent(analyze(str(TRACE)))


def test_ids_lead_back_to_codes(five_faults: Result) -> None:
    ids = finding_ids(five_faults.findings)
    assert len(set(ids)) == len(ids)
    assert [code_of(identity) for identity in ids] == [finding.code for finding in five_faults.findings]
    assert code_of("dataloader-stall") == "dataloader-stall"


@pytest.mark.real_traces
def test_real_traces_fit() -> None:
    for name in sorted(expected())[:4]:
        assert estimated_tokens(render_agent(analyze(str(TRACES / name)))) <= MAX_TOKENS


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("one two", 2), ("num_workers=0", 6), ("a\n\nb", 3), ("12345", 2), ("→", 3), ('{"id":"x"}', 6)],
)
def test_tokens_are_counted_by_pieces(text: str, tokens: int) -> None:
    assert estimated_tokens(text) == tokens
