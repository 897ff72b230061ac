"""Scripts and settings in docs/clusters.md, docs/editors.md and docs/integrations.md."""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from support.documentation import fences, parse_traceopt
from support.traces import GetExample

from fixtures.hostile import hostile_trace
from traceopt.api import analyze
from traceopt.integrations.tracking import TRACKERS, metrics
from traceopt.reports.text.terminal import render_concise
from traceopt.reports.words.display import for_display
from traceopt.reports.words.fixes import fix_cards

DOCS = Path(__file__).resolve().parents[2] / "docs"


def bash_commands(page: Path) -> list[list[str]]:
    """The words of each traceopt command in the page's shell scripts, after a launcher such as srun."""
    lines = "".join(fences(page, "bash")).replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines if "traceopt " in line]
    return [line[line.index("traceopt") + 1 :] for line in words if "traceopt" in line]


def test_commands_of_the_cluster_scripts_are_accepted() -> None:
    commands = bash_commands(DOCS / "clusters.md")
    assert [command[0] for command in commands] == ["run", "analyze", "run"]
    for command in commands:
        parse_traceopt(command)


@pytest.mark.parametrize("name", ["clusters", "integrations"])
def test_python_scripts_are_python(name: str) -> None:
    scripts = fences(DOCS / f"{name}.md", "python")
    assert scripts
    for script in scripts:
        ast.parse(script)


def test_the_page_names_every_metric_and_tracker(example: GetExample) -> None:
    page = (DOCS / "integrations.md").read_text()
    for scenario in ("five_faults", "straggler"):
        assert [name for name in metrics(example(scenario).result) if f"`{name}`" not in page] == []
    assert [name for name in TRACKERS if f'| `"{name}"` |' not in page] == []


def task() -> Any:
    [tasks] = fences(DOCS / "editors.md", "json")
    return json.loads(tasks)["tasks"][0]


def test_the_command_of_the_task_is_accepted() -> None:
    program, *arguments = shlex.split(task()["command"])
    assert program == "traceopt"
    parse_traceopt(arguments)


@pytest.mark.parametrize("scenario", ["five_faults", "straggler", "hostile"])
def test_the_problem_matcher_matches_findings_with_a_line(scenario: str, example: GetExample, tmp_path: Path) -> None:
    pattern = task()["problemMatcher"]["pattern"]
    if scenario == "hostile":
        result = analyze(str(hostile_trace().write(tmp_path / "hostile.json")))
    else:
        result = example(scenario).result
    matches = [re.search(pattern["regexp"], line) for line in render_concise(result).splitlines()]
    found = [
        (f"{match[pattern['file']]}:{match[pattern['line']]}", match[pattern["code"]], match[pattern["message"]])
        for match in matches
        if match is not None
    ]
    shown = for_display(result).findings
    with_line = [(str(fix_cards.location(one)), one) for one in shown if one.locations and one.locations[0].line]
    assert [(place, code) for place, code, _ in found] == [(place, one.code) for place, one in with_line]
    assert all(message.endswith(one.title) for (*_, message), (_, one) in zip(found, with_line, strict=True))
    assert found
