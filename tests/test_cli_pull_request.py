"""The options for pull requests: what is written where, and what cannot be written is told before the analysis."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.command_line import RESULT, one_error, run

import traceopt.api
from traceopt.cli.shared.pull_request import SUMMARY_LIMIT
from traceopt.result.finding import Finding, Fix, Location
from traceopt.result.sections.run import TraceFile

PLACED = Finding(
    "DL001", "stall", "Use workers", "low", "high", "", "", None, "", [], [Location("train.py", 3)], Fix("")
)
EVERYWHERE = replace(PLACED, code="CM003", locations=[])


@pytest.fixture(autouse=True)
def analyses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A repository with examples/train.py, the current folder, and an analysis that finds something there."""
    done: list[Any] = []
    files = [TraceFile("logs/rank0.json", 0, 2, 0, 0, 0)]
    result = replace(RESULT, run=replace(RESULT.run, files=files), findings=[PLACED, EVERYWHERE])

    def analyze(*arguments: Any, **_: Any) -> Any:
        done.append(arguments)
        return result

    monkeypatch.setattr(traceopt.api, "analyze", analyze)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.chdir(tmp_path)
    for folder in ("examples", ".git", "logs"):
        Path(folder).mkdir()
    Path("examples/train.py").write_text("")
    Path("logs/rank0.json").write_text("{}")
    return done


def analyze(*options: str) -> Any:
    return run("analyze", "logs", "--no-html", "--source", "examples", *options)


def test_files_beside_the_summary() -> None:
    outcome = analyze("--markdown", "comment.md", "--sarif", "out.sarif", "--label", "resnet", "--format", "github")
    assert outcome.exit_code == 0
    assert outcome.stdout.startswith(
        "::notice title=traceopt DL001,file=examples/train.py,line=3,endLine=3::Use workers%0A"
    )
    assert Path("comment.md").read_text().startswith("<!-- traceopt:resnet -->\n")
    sarif = json.loads(Path("out.sarif").read_text())["runs"][0]
    assert sarif["automationDetails"] == {"id": "resnet/"}
    place = sarif["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == {"uri": "examples/train.py", "uriBaseId": "%SRCROOT%"}
    assert outcome.stderr == (
        "traceopt: only a notification in the SARIF file, "
        "because these findings have no line in the repository: CM003\n"
    )


def test_stdout_in_each_format() -> None:
    assert analyze("--format", "markdown").stdout.startswith("<!-- traceopt:traceopt -->\n")
    assert json.loads(analyze("--format", "sarif").stdout)["version"] == "2.1.0"
    (issue,) = json.loads(analyze("--format", "gitlab").stdout)
    assert issue["location"] == {"path": "examples/train.py", "lines": {"begin": 3}}
    assert analyze("--format", "gitlab", "--quiet").stderr == ""


def test_the_summary_of_a_job_is_added_to(monkeypatch: pytest.MonkeyPatch) -> None:
    summary = Path("summary.md")
    summary.write_text("# Before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary.absolute()))
    assert analyze().exit_code == 0
    assert summary.read_text() == "# Before\n"  # only where asked for
    assert analyze("--job-summary").exit_code == 0
    assert summary.read_text().startswith("# Before\n<!-- traceopt:traceopt -->\n")
    os.truncate(summary, SUMMARY_LIMIT - 100)
    outcome = analyze("--job-summary")
    assert outcome.exit_code == 0
    assert outcome.stderr == "traceopt: nothing added to the job summary: it would exceed 1 MiB\n"
    assert summary.stat().st_size == SUMMARY_LIMIT - 100


def test_what_cannot_be_written_is_told_before_the_analysis(
    analyses: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "the folder gone does not exist" in one_error(analyze("--markdown", "gone/comment.md"))
    assert "logs: it is a folder" in one_error(analyze("--sarif", "logs"))
    assert "GITHUB_STEP_SUMMARY is not set" in one_error(analyze("--job-summary"))
    assert "GITHUB_STEP_SUMMARY is not set" in one_error(run("run", "--job-summary", "examples/train.py"))
    assert "the folder gone does not exist" in one_error(run("run", "--sarif", "gone/x", "examples/train.py"))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(Path("gone/summary.md").absolute()))
    assert "the folder" in one_error(analyze("--job-summary"))
    assert analyses == []


def test_a_trace_is_never_overwritten() -> None:
    assert "it would overwrite an input" in one_error(analyze("--markdown", "logs/rank0.json"))
    assert Path("logs/rank0.json").read_text() == "{}"
