"""The tools of the MCP server: what they answer, in which budget, and what they refuse to read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import sample
from mcp_clients import Server, text_of
from msgspec.structs import replace

from fixtures.generate import generate
from fixtures.hostile import hostile_trace
from fixtures.real_traces import TRACES
from traceopt.assistants.answers import UNTRUSTED
from traceopt.assistants.finding_answers import analyzed
from traceopt.reports.agent.tokens import estimated_tokens
from traceopt.reports.words.safe_text import clean
from traceopt.result.finding import Location
from traceopt.rules.registry import load_rules
from traceopt.trying.history import Attempt, append

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "traces"
TRACE = "five_faults.json.gz"
READING = ["analyze", "explain", "compare", "whatif", "patch", "rules", "tried"]


@pytest.fixture(scope="module")
def server() -> Server:
    return Server(FIXTURES)


def test_running_is_off_unless_allowed(server: Server) -> None:
    tools = server.tools()
    assert [tool.name for tool in tools] == READING
    assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in tools)
    running = [tool for tool in Server(FIXTURES, allow_run=True).tools() if tool.name not in READING]
    assert [tool.name for tool in running] == ["try_variant", "tune"]
    assert all(tool.annotations is not None and tool.annotations.read_only_hint is False for tool in running)
    assert "Unknown tool" in server.error("try_variant", script="train.py", fixes=["DL001"])


def test_each_tool_has_schemas_and_describes_its_arguments() -> None:
    for tool in Server(FIXTURES, allow_run=True).tools():
        assert tool.description
        assert tool.output_schema is not None
        assert tool.output_schema["type"] == "object"
        jsonschema.Draft202012Validator.check_schema(tool.output_schema)
        assert [name for name, about in tool.input_schema["properties"].items() if "description" not in about] == []


def test_structured_content_follows_the_schema_and_the_text_is_the_same(server: Server) -> None:
    schemas = {tool.name: tool.output_schema for tool in server.tools()}
    for name, arguments in calls(TRACE).items():
        result = server.call(name, **arguments)
        assert not result.is_error, text_of(result)
        assert json.loads(text_of(result)) == result.structured_content
        assert schemas[name] is not None
        jsonschema.validate(result.structured_content, schemas[name])


def test_a_finding_is_named_as_in_the_report() -> None:
    """Two of one title have their functions, and what is not in the plan names the fixes of the same cause."""
    rich = sample.rich()
    planned = rich.plan[0].finding
    first = next(one for one in rich.findings if one.id == planned)
    again = replace(
        first,
        id=f"{first.code}-012345",
        locations=[Location("train.py", 33, "read_loss")],
        shares_cause_with=[first.code],
    )
    others = [one for one in rich.findings if one.saving is None]
    rows = [one for one in rich.findings if one.saving is not None]
    answer = analyzed(replace(rich, findings=[*rows, again, *others]))
    other = next(row for row in answer.other_findings if row.id == again.id)
    assert other.title == f"{first.title}, in read_loss"
    assert planned in other.same_cause_as
    assert not any(row.same_cause_as for row in answer.plan)


def test_clients_of_the_older_protocol_get_the_same(server: Server) -> None:
    legacy, modern = (server.call("analyze", path=TRACE, mode=mode) for mode in ("legacy", "auto"))
    assert legacy.structured_content == modern.structured_content
    assert text_of(legacy) == text_of(modern)


def test_analyze_has_verdict_plan_and_others(server: Server) -> None:
    answer = server.answer("analyze", path=TRACE)
    assert "The data loader is the bottleneck." in answer["verdict"]
    assert (answer["limit"], answer["limit_after"]) == ("input-bound", "GPU-bound")
    first = answer["plan"][0]
    assert first["id"].startswith("DL001-")
    assert first["where"] == ["train.py:118", "data.py:41"]
    assert answer["step_ms"] - sum(row["saves_ms"] for row in answer["plan"]) == pytest.approx(
        answer["step_after_ms"], rel=0.01
    )
    assert "likely" in answer["saves"], "an estimate goes with its range"
    planned = {row["id"] for row in answer["plan"]}
    assert not planned & {row["id"] for row in answer["other_findings"]}


def test_the_limit_agrees_with_the_verdict(server: Server) -> None:
    answer = server.answer("analyze", path="exposed_allreduce")
    assert answer["verdict"].startswith("Exposed (non-overlapped) communication takes 29% of the step.")
    assert answer["limit"] == "communication-bound"


def test_ids_are_the_same_in_another_recording(server: Server, tmp_path: Path) -> None:
    generate("slow_loader", steps=9).write(tmp_path / "again.json")
    here = [row["id"] for row in server.answer("analyze", path="slow_loader.json.gz")["plan"]]
    there = [row["id"] for row in Server(tmp_path).answer("analyze", path="again.json")["plan"]]
    assert here == there
    assert len(here) == 1


def test_explain_says_how_sure_it_is_and_when_it_is_wrong(server: Server) -> None:
    by_id = server.answer("explain", path=TRACE, finding=server.answer("analyze", path=TRACE)["plan"][0]["id"])
    assert by_id == server.answer("explain", path=TRACE, finding="dataloader-stall")
    assert by_id["how_sure"].startswith("high: ")
    assert by_id["when_wrong"].startswith("When it is wrong: ")
    assert "9.0 ms" in by_id["why"]
    assert "found: DL001-" in server.error("explain", path=TRACE, finding="HS006")


def test_a_code_with_several_findings_stands_for_all(server: Server) -> None:
    explained = server.answer("explain", path=TRACE, finding="HS001")
    [other] = explained["also_found"]
    assert explained["where"] != other["where"]
    assert "also_found" not in server.answer("explain", path=TRACE, finding="DL001")
    patch = server.answer("patch", path=TRACE, findings=["HS001", "GM001"])
    reasons = dict(row.split(": ") for row in patch["without_patch"])
    assert {explained["id"], other["id"]} < set(reasons)
    assert set(reasons.values()) == {
        "train.py is not in the source folders, or cannot be read",
        "this fix has no automatic edit",
    }


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("analyze", {}, "wrong arguments of analyze: path is missing"),
        ("rules", {"max_token": 9}, "wrong arguments of rules: max_token is no argument; did you mean 'max_tokens'?"),
        ("rules", {"max_tokens": 9}, "wrong arguments of rules: max_tokens should be greater than or equal to 300"),
        ("analyze", {"path": "a" * 300}, f"no such file or folder under the roots: {'a' * 99}…"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(server: Server, tool: str, arguments: dict[str, Any], message: str) -> None:
    assert server.error(tool, **arguments).removeprefix(f"Error executing tool {tool}: ") == message


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("rules", {"code": "a" * 10**6}), ("analyze", {"path": "a/" * 10**5}), ("explain", {"findings": ["HS" * 10**5]})],
)
def test_an_error_does_not_repeat_a_long_argument(server: Server, tool: str, arguments: dict[str, Any]) -> None:
    assert (
        len(server.error(tool, **{"path": "healthy.json.gz", **arguments} if tool == "explain" else arguments)) < 2_100
    )


def test_whatif_takes_ids_and_scales(server: Server) -> None:
    plan = server.answer("analyze", path=TRACE)["plan"]
    answer = server.answer("whatif", path=TRACE, fixes=[plan[0]["id"]])
    assert answer["before_ms"] - answer["after_ms"] == pytest.approx(plan[0]["saves_alone_ms"], abs=0.2)
    faster = server.answer("whatif", path=TRACE, scale={"kernel~gemm": 0.5})
    assert faster["after_ms"] < faster["before_ms"]


def test_compare_gives_the_interval(server: Server) -> None:
    answer = server.answer("compare", base="healthy.json.gz", head=[TRACE])  # one text is a list of it
    assert answer["outcome"] == "slower"
    assert answer["low_share"] < answer["change_share"] < answer["high_share"]
    assert any("DL001" in finding for finding in answer["findings"])


def test_rules_lists_them_and_has_the_page_of_one(server: Server) -> None:
    everything = server.answer("rules", max_tokens=10_000)
    assert len(everything["rules"]) == len(load_rules().rules)
    assert {row["code"] for row in server.answer("rules", code="DL")["rules"]} > {"DL001", "DL002"}
    assert "Why it costs" in " ".join(server.answer("rules", code="dataloader-stall")["page"])
    assert "did you mean" in server.error("rules", code="dataloder-stall")


def test_a_patch_is_a_diff_and_writes_nothing(tmp_path: Path) -> None:
    shutil.copy(FIXTURES / TRACE, tmp_path)
    line = "    loader = DataLoader(dataset, batch_size=8, num_workers=0)\n"
    function = f"def main():\n{line}    for batch in loader:\n        step(batch)\n"
    (tmp_path / "train.py").write_text("from torch.utils.data import DataLoader\n" + "\n" * 114 + function)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    answer = Server(tmp_path).answer("patch", path=TRACE, findings=["DL001"])
    assert "-" + line in answer["diff"]
    assert answer["ids"][0].startswith("DL001-")
    explained = Server(tmp_path).answer("explain", path=TRACE, finding="DL001")
    assert explained["has_patch"]
    assert "118      for batch in loader:" in explained["source_lines"]
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_trace_is_analyzed_once_until_it_changes(tmp_path: Path) -> None:
    server = Server(tmp_path)
    shutil.copy(FIXTURES / "healthy.json.gz", tmp_path / "trace.json.gz")
    healthy = server.answer("analyze", path="trace.json.gz")
    assert server.answer("analyze", path=str(tmp_path / "trace.json.gz")) == healthy
    assert server.analyses == 1
    shutil.copy(FIXTURES / TRACE, tmp_path / "trace.json.gz")
    assert server.answer("analyze", path="trace.json.gz")["step_ms"] > healthy["step_ms"]
    assert server.analyses == 2


class TestRoots:
    @pytest.fixture
    def project(self, tmp_path: Path) -> Path:
        """A root beside a folder that must not be read."""
        secret = tmp_path / "secret"
        secret.mkdir()
        shutil.copy(FIXTURES / "healthy.json.gz", secret / "trace.json.gz")
        (tmp_path / "root").mkdir()
        return tmp_path / "root"

    @pytest.mark.parametrize(
        "path", ["../secret/trace.json.gz", "{secret}/trace.json.gz", "../secret", "../sec*/*", "/"]
    )
    def test_nothing_outside_is_read(self, project: Path, path: str) -> None:
        message = Server(project).error("analyze", path=path.format(secret=project.parent / "secret"))
        assert "is outside the folders" in message

    def test_what_is_outside_and_what_is_missing_there_look_the_same(self, project: Path) -> None:
        server = Server(project)
        there, missing = (server.error("analyze", path=f"../secret/{name}") for name in ("trace.json.gz", "no.json.gz"))
        assert there.replace("trace.json.gz", "") == missing.replace("no.json.gz", "")

    @pytest.mark.parametrize("path", ["link.json.gz", "folder", "fold*", "."])
    def test_links_out_of_the_root_are_not_followed(self, project: Path, path: str) -> None:
        (project / "link.json.gz").symlink_to(project.parent / "secret" / "trace.json.gz")
        (project / "folder").symlink_to(project.parent / "secret")
        assert "is outside the folders" in Server(project).error("analyze", path=path)

    @pytest.mark.parametrize("path", ["s3://bucket/trace.json", "file:///etc/hostname", "", "a\0b"])
    def test_no_address_is_opened(self, project: Path, path: str) -> None:
        assert "not a path under the roots" in Server(project).error("analyze", path=path)

    def test_other_arguments_are_paths_too(self, project: Path) -> None:
        shutil.copy(FIXTURES / "healthy.json.gz", project / "mine.json.gz")
        server, theirs = Server(project, allow_run=True), "../secret/trace.json.gz"
        for tool, arguments in {
            "compare": {"base": ["mine.json.gz"], "head": [theirs]},
            "whatif": {"path": theirs, "scale": {"kernel~a": 1}},
            "tried": {"path": theirs},
            "patch": {"path": "mine.json.gz", "source": "../secret"},
            "try_variant": {"script": "../secret/train.py", "fixes": ["DL001"]},
        }.items():
            assert "is outside the folders" in server.error(tool, **arguments), tool

    def test_several_roots(self, project: Path) -> None:
        assert Server(project, FIXTURES).answer("analyze", path=TRACE)["plan"]


def calls(trace: str, finding: str = "DL001") -> dict[str, dict[str, Any]]:
    return {
        "analyze": {"path": trace},
        "explain": {"path": trace, "finding": finding},
        "compare": {"base": [trace], "head": [trace]},
        "whatif": {"path": trace, "fixes": [finding]},
        "patch": {"path": trace, "findings": [finding]},
        "rules": {},
    }


@pytest.mark.parametrize("max_tokens", [300, 1_500])
def test_hostile_names_break_neither_structure_nor_budget(tmp_path: Path, max_tokens: int) -> None:
    hostile_trace().write(tmp_path / "hostile.json")
    server = Server(tmp_path)
    schemas = {tool.name: tool.output_schema for tool in server.tools()}
    for name, arguments in calls("hostile.json").items():
        result = server.call(name, **arguments, max_tokens=max_tokens)
        text = text_of(result)
        assert not result.is_error, text
        assert estimated_tokens(text) <= max_tokens
        assert schemas[name] is not None
        jsonschema.validate(json.loads(text), schemas[name])
        assert json.loads(text)["untrusted_text"] == UNTRUSTED
        assert next(iter(json.loads(text))) == "untrusted_text"
        assert text.isprintable()
        assert all(string == clean(string, len(string)) for string in strings(json.loads(text)))


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value.replace("\n", " ")]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [string for item in items for string in strings(item)]


@pytest.mark.real_traces
def test_each_answer_fits_on_the_largest_real_trace() -> None:
    largest = max(TRACES.rglob("*.json.gz"), key=lambda path: path.stat().st_size)
    server = Server(TRACES)
    path = str(largest.relative_to(TRACES))
    analyzed = server.answer("analyze", path=path, max_tokens=25_000)
    finding = (analyzed["plan"] or analyzed["other_findings"])[0]["id"]
    for budget in (300, 700, 1_500):
        for name, arguments in (calls(path, finding) | {"whatif": {"path": path, "scale": {"kernel~.": 0.5}}}).items():
            result = server.call(name, **arguments, max_tokens=budget)
            assert not result.is_error, text_of(result)
            assert estimated_tokens(text_of(result)) <= budget, name
    assert server.analyses == 1


def test_the_history_of_tries_fits_and_begins_with_the_latest(tmp_path: Path) -> None:
    gains = (9.0, 8.0, 10.0, 100.0, 10.0, 5.0, 15.0)
    attempts = [
        Attempt(f"2026-01-01T{n // 60:02}:{n % 60:02}:00Z", "train.py", code, "patch", "keep", *gains)
        for n, code in enumerate(["DL001", "OP001"] * 200)
    ]
    (tmp_path / "traceopt-logs").mkdir()
    append(tmp_path / "traceopt-logs" / "tried.jsonl", attempts)
    result = Server(tmp_path).call("tried", change="DL001-9b3b55", max_tokens=500)
    assert estimated_tokens(text_of(result)) <= 500
    rows = (result.structured_content or {})["tried"]
    assert {row["change"] for row in rows} == {"DL001"}
    assert [row["time"] for row in rows] == sorted((row["time"] for row in rows), reverse=True)
    assert rows[0]["gain_share"] == pytest.approx(0.1)
    assert "of tried; raise max_tokens" in (result.structured_content or {})["left_out"]
