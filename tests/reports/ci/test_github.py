"""Workflow annotations, parsed like GitHub's runner parses them."""

from __future__ import annotations

import re

import pytest
import sample
from msgspec.structs import replace

from fixtures.hostile import HOSTILE
from traceopt.reports.ci.github import ANNOTATIONS, render_github
from traceopt.reports.words import safe_text
from traceopt.result.comparison import GateOutcome
from traceopt.result.document import Result
from traceopt.result.finding import Fix, Location

COMMAND = re.compile(r"::(?P<level>\w+) (?P<properties>.*?)::(?P<message>.*)")


def annotations(result: Result) -> list[dict[str, str]]:
    """Each line's level, properties and message, unescaped as in actions/runner, ActionCommand.cs."""
    read = []
    for line in render_github(result).splitlines():
        command = COMMAND.fullmatch(line)
        assert command is not None, line
        one = {"level": command["level"], "message": unescaped(command["message"])}
        for pair in command["properties"].split(","):
            key, _, value = pair.partition("=")
            one[key] = unescaped(value.replace("%3A", ":").replace("%2C", ","))
        read.append(one)
    return read


def unescaped(value: str) -> str:
    return value.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")


def test_a_line_of_the_pull_request_is_annotated() -> None:
    first, second, *_ = annotations(sample.rich())
    assert first["level"] == "warning"
    assert (first["file"], first["line"], first["endLine"]) == ("train.py", "61", "61")
    assert first["title"] == "traceopt DL001 saves about 150\u00a0ms per step (36%) alone"
    assert first["message"].splitlines() == [
        "Load data in worker processes",
        "The loader runs inside the training process, so the GPU waits 187\u00a0ms of every 412\u00a0ms step.",
        "Give the DataLoader worker processes. 16 CPU cores are visible to this rank.",
    ]
    assert second["file"] == "model/vit.py"  # from the evidence, because the finding names no place


def test_most_expensive_findings_come_first_ten_at_most() -> None:
    rich = sample.rich()
    some = [
        replace(rich.findings[0], code=f"XX{number:03}", id=str(number), saving=sample.saving(0, number, 400, ""))
        for number in range(15)
    ]
    shown = annotations(replace(rich, findings=[rich.findings[5], *some], plan=[]))
    assert [one["title"][9:14] for one in shown] == [f"XX{number:03}" for number in range(14, 4, -1)]
    assert len(shown) == ANNOTATIONS
    row = replace(rich.plan[0], code="XX003", finding="3")
    planned = annotations(replace(rich, findings=[rich.findings[5], *some], plan=[row]))
    assert [one["title"][9:14] for one in planned[:3]] == ["XX003", "XX014", "XX013"]


def test_gates_that_failed_come_first() -> None:
    gates = [
        GateOutcome("step_time=+5%", "fail", "failed", "step_time is 15% worse::"),
        GateOutcome("gpu_idle=0.9", "fail", "passed", "gpu_idle is 61%"),
        GateOutcome("tokens_per_s=9", "warn", "not_checked", "tokens_per_s was not measured"),
    ]
    lines = render_github(sample.rich(), gates=gates).splitlines()
    assert lines[:2] == [
        "::error title=traceopt gate::step_time is 15%25 worse:: (--fail-on step_time=+5%25)",
        "::warning title=traceopt gate::tokens_per_s was not measured (--warn-on tokens_per_s=9)",
    ]
    assert "DL001" in lines[2]


def test_a_small_saving_is_a_notice_and_an_absent_one_comes_last() -> None:
    shown = annotations(sample.rich())
    assert [one["level"] for one in shown] == ["warning"] * 4 + ["notice"] * 2
    assert shown[-1]["title"] == "traceopt TC003"
    assert "file" not in shown[-1]


@pytest.mark.parametrize(
    "file", ["/work/train.py", "~/train.py", "../train.py", "a/../../x.py", "C:/x.py", "<ipython>"]
)
def test_a_file_outside_of_the_repository_is_not_named(file: str) -> None:
    rich = sample.rich()
    away = replace(rich.findings[0], locations=[Location(file, 1, "f")], evidence=[])
    assert "file" not in annotations(replace(rich, findings=[away]))[0]


def test_no_string_is_a_command_or_a_property() -> None:
    result = sample.hostile()
    output = render_github(result)
    shown = annotations(result)
    assert len(output.splitlines()) == len(shown) == len(result.findings)
    assert {key for one in shown for key in one} <= {"level", "message", "title", "file", "line", "endLine"}
    assert "##[" not in output
    assert sample.hidden_in(output) == []


@pytest.mark.parametrize("string", HOSTILE)
def test_a_hostile_string_is_text_everywhere(string: str) -> None:
    rich = sample.rich()
    finding = replace(
        rich.findings[0],
        code=string,
        title=string,
        why=string,
        fix=Fix(string),
        evidence=[],
        locations=[Location(string, 3, string)],
    )
    (one,) = annotations(replace(rich, findings=[finding]))
    text = safe_text.clean(string).replace("##", "#.")
    assert one["message"].splitlines()[0] == text
    assert one["title"] == f"traceopt {text} saves about 150\u00a0ms per step (36%) alone"
    assert one.get("file", text) == text
