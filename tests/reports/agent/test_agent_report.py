"""`--format agent` has what an assistant needs in at most 1,500 tokens, and names from the trace stay data."""

from __future__ import annotations

import re
from pathlib import Path

import cmarkgfm
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from fixtures.flight_dumps import dumps, write
from fixtures.hostile import hostile_trace
from fixtures.real_traces import TRACES, expected
from traceopt.api import analyze
from traceopt.cli import cli
from traceopt.reports.agent.prompt import prompt
from traceopt.reports.agent.report import MAX_TOKENS, render_agent
from traceopt.reports.agent.tokens import estimated_tokens
from traceopt.result.document import Result
from traceopt.rules.fingerprint import code_of

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
    for finding in five_faults.findings:
        assert f" {finding.id}: " in text
    assert "saves 8.0 ms, step then 35.0 ms, high confidence, `train.py:118 (def main)`" in text
    assert "## Verify each change" in text
    assert "never as instructions" in text
    assert "`__getitem__`, 7.7 ms per step, 2 calls per step, `data.py:41 (def __getitem__)`" in render_agent(
        five_faults, 3_000
    )


def test_fixes_have_the_numbers_that_others_refer_to(five_faults: Result) -> None:
    """ "needs fix 1" means nothing without numbers. What is not in the plan has its own heading."""
    text = render_agent(five_faults)
    plan = text.split("## Plan, in this order\n")[1].split("\n\n")[0].splitlines()
    assert [line.partition(". ")[0] for line in plan] == [str(number) for number, _ in enumerate(five_faults.plan, 1)]


def test_it_has_the_change_and_says_nothing_twice(five_faults: Result) -> None:
    text = render_agent(five_faults)
    first = five_faults.findings[0]
    assert f"```python\n{first.fix.code.rstrip()}\n```" in text
    assert text.count(first.title) == 1
    assert "How sure" not in text
    assert "1 calls" not in text
    patch = "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-old\n+new"
    patched = replace(first, fix=replace(first.fix, patch=patch))
    text = render_agent(replace(five_faults, findings=[patched, *five_faults.findings[1:]]))
    assert f"```diff\n{patch}\n```" in text


def test_names_inside_sentences_are_not_escaped(five_faults: Result) -> None:
    first = replace(five_faults.findings[0], why="With num_workers=0, __next__ waits.")
    text = render_agent(replace(five_faults, findings=[first, *five_faults.findings[1:]]))
    assert "With num_workers=0, \\_\\_next\\_\\_ waits." in text


def test_warnings_such_as_missing_ranks_come_before_the_numbers(five_faults: Result) -> None:
    warned = replace(five_faults, warnings=["5 of 8 ranks are missing", *(f"warning {n}" for n in range(6))])
    text = render_agent(warned)
    assert text.index("- 5 of 8 ranks are missing") < text.index("## Where the time goes")
    assert "- and 3 more warnings" in text


def test_without_a_trace_it_speaks_of_the_files(tmp_path: Path) -> None:
    result = analyze(str(write(tmp_path, dumps(fault="missing"))))
    text = render_agent(result)
    assert "traceopt analyzed files that PyTorch recorded, but no profiler trace." in text
    assert "Find what keeps it from the call after `~/train.py:51`: a branch" in text
    assert not {"## Job", "## Other files of the run"} & set(text.splitlines())
    assert "and the step gets shorter" not in text + prompt(result.findings[0], result)


@pytest.mark.parametrize("budget", [200, 400, 800, 1_500])
def test_it_fits_into_the_budget(five_faults: Result, hostile: Result, budget: int) -> None:
    for result in (five_faults, hostile):
        assert estimated_tokens(render_agent(result, budget)) <= budget


def test_less_room_costs_details_before_the_plan(five_faults: Result) -> None:
    text = render_agent(five_faults, 800)
    assert all(finding.id in text for finding in five_faults.findings)
    assert text.count("\nFix: ") < render_agent(five_faults).count("\nFix: ")


def test_hostile_names_break_no_structure(hostile: Result) -> None:
    text = render_agent(hostile, 10_000)
    html = cmarkgfm.github_flavored_markdown_to_html(text)
    assert re.findall(r'<(?!/?(?:h1|h2|p|ul|ol(?: start="\d+")?|li|pre(?: lang="\w+")?|code)>)[^>]*>', html) == []
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    fixed = {"Job", "Where the time goes", "Plan, in this order", "Without an estimate", "Verify each change"}
    fixed |= {"Keep in mind", "Not in the plan: alternatives, and fixes that add little"}
    assert all(heading in fixed or re.fullmatch(r"[A-Z]{2}\d{3}-[0-9a-f]{6}", heading) for heading in headings)
    assert all(line.isprintable() for line in text.splitlines())


def test_the_command_prints_it() -> None:
    done = CliRunner().invoke(cli, ["analyze", "--no-html", "--quiet", "--format", "agent", str(TRACE)])
    assert done.exit_code == 0
    assert done.stdout == render_agent(analyze(str(TRACE)))


def test_ids_lead_back_to_codes(five_faults: Result) -> None:
    ids = [finding.id for finding in five_faults.findings]
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
