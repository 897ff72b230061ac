"""`traceopt run` from the outside: the summary at the end, where files go, and what is refused."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from runs import Run

from traceopt import run_script
from traceopt.capture.launch.launcher import CommandError, command_line
from traceopt.capture.launch.outcome import RecordingOutcome
from traceopt.capture.settings import PRESETS, first_recorded_step, plan_cycles, recorded_steps
from traceopt.cli import cli

TRACE = Path(__file__).parents[2] / "fixtures/traces/five_faults.json.gz"


@pytest.mark.run("loops.py", "plain", options=("--analyze", "--preset", "quick"))
def test_the_summary_follows_and_names_report_and_traces(run: Run) -> None:
    assert run.code == 0, run.stderr
    assert "CPU-only run: " in run.stdout
    assert re.search(
        r"^Report: traceopt-report\.html\nTraces: \S+logs\n"
        r"Saving the traces took \d+\.\d s, the analysis \d+\.\d s\.$",
        run.stdout,
        re.MULTILINE,
    )
    assert (run.folder.parent / "work" / "traceopt-report.html").is_file()
    assert sorted(path.name for path in run.folder.iterdir()) == [trace.path.name for trace in run.traces]
    assert run.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Missing argument 'SCRIPT [ARGS]...'"),
        (("missing.py",), "no such script: missing.py"),
        (("no-such-program",), "cannot start no-such-program: no such script or program"),
        (("--preset", "quick", "--active", "3", "x.py"), "use either a preset, or wait, warmup, active, repeat"),
        (("--step-on", "batches", "x.py"), "did you mean 'batch'?"),
        (("--name", "a/b", "x.py"), "--name a/b: expected a folder name"),
        (("--logdir", "a\nb", "x.py"), "the profiler writes no files there"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = CliRunner().invoke(cli, ["run", *arguments])
    assert outcome.exit_code == 2
    assert message in outcome.stderr
    assert outcome.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_says_what_would_be_recorded_and_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("raise SystemExit(1)")
    outcome = CliRunner().invoke(cli, ["run", "--dry-run", "--logdir", "logs", "train.py", "two words"])
    assert outcome.exit_code == 0
    assert outcome.stdout.splitlines() == [
        f"Command: {sys.executable} train.py 'two words'",
        "Traces: logs",
        "Steps 8 to 12: times (timing cycle)",
        "Steps 17 to 18: times, shapes, memory, lines of code (detail cycle)",
        "The run needs 19 steps, counted from 0.",
        "A step ends: detected from data loaders, optimizers and backward passes",
        "A cycle ends early after 120 s, or about 500,000 events.",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]
    assert CliRunner().invoke(cli, ["run", "--dry-run", "missing.py"]).exit_code == 2


def test_scripts_and_modules_get_this_python_and_programs_do_not(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    assert command_line([str(script), "-x"], module=False)[1:] == [str(script), "-x"]
    assert command_line(["package.train", "--lr"], module=True)[1:] == ["-m", "package.train", "--lr"]
    assert command_line(["sh", "-c", "true"], module=False)[1:] == ["-c", "true"]
    (tmp_path / "notes").write_text("text")
    with pytest.raises(CommandError, match="it is not executable"):
        command_line([str(tmp_path / "notes")], module=False)


def test_presets_record_the_steps_that_the_help_names() -> None:
    shown = " ".join(CliRunner().invoke(cli, ["run", "--help"]).stdout.split())
    for name, cycles in PRESETS.items():
        spans = [f"{steps.start}-{steps.stop - 1}" for steps in recorded_steps(cycles)]
        assert f"{' and '.join(spans)} ({name})" in shown
        assert first_recorded_step(cycles) == int(spans[0].partition("-")[0])


def test_plain_options_have_the_meaning_of_torch() -> None:
    [cycle] = plan_cycles(wait=1, warmup=0, active=2, record_shapes=True)
    assert (cycle.wait, cycle.warmup, cycle.active, cycle.record_shapes, cycle.with_stack) == (1, 0, 2, True, False)
    assert len(plan_cycles(repeat=3)) == 3
    with pytest.raises(ValueError, match="active: 0 is too small"):
        plan_cycles(active=0)


@pytest.fixture
def ended_with_5(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script that has left a trace, and then ended with code 5. Returns the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    outcome = RecordingOutcome([TRACE], None, [], 2.5)
    monkeypatch.setattr(run_script, "record", lambda *_, **__: (5, outcome))
    return tmp_path


@pytest.mark.usefixtures("ended_with_5")
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (IndexError("index 528"), "internal error: IndexError: index 528 (run with --debug for the traceback)"),
        (MemoryError(), "error: not enough memory: pass fewer or smaller traces"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_an_analysis_that_fails_keeps_the_exit_code_and_names_the_traces(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, said: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("traceopt.api.analyze", fail)
    outcome = CliRunner().invoke(cli, ["run", "--logdir", "logs", "train.py"])
    assert outcome.exit_code == 5
    assert outcome.stdout == ""
    assert outcome.stderr == f"traceopt: {said}; the traces are kept: traceopt analyze logs\n"


def test_a_gate_fails_if_the_analysis_does(ended_with_5: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = RecordingOutcome([ended_with_5 / "gone.json"], None, [], 2.5)
    monkeypatch.setattr(run_script, "record", lambda *_, **__: (0, outcome))
    arguments = ["run", "--logdir", "logs", "train.py"]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    gated = CliRunner().invoke(cli, ["run", "--fail-on", "high", *arguments[1:]])
    assert gated.exit_code == 1
    assert "the analysis failed" in gated.stderr


def test_it_writes_what_analyze_writes(ended_with_5: Path) -> None:
    files = ["--json", "result.json", "--sarif", "result.sarif", "--markdown", "comment.md", "--html", "report.html"]
    arguments = ["run", "--logdir", "logs", *files, "--select", "HS", "--format", "concise", "train.py"]
    outcome = CliRunner().invoke(cli, arguments)
    assert outcome.exit_code == 5, outcome.stderr
    assert {line.split()[1][:2] for line in outcome.stdout.splitlines()[1:]} == {"HS"}
    assert outcome.stderr.startswith("Report: report.html\nTraces: logs\nSaving the traces took 2.5 s, the analysis ")
    assert {file for file in files if not file.startswith("--")} < {path.name for path in ended_with_5.iterdir()}
    document = CliRunner().invoke(cli, ["run", "--logdir", "logs", "--no-html", "--json", "-", "train.py"]).stdout
    assert json.loads(document)["step"]["count"] > 0


def test_the_verdict_says_that_the_script_crashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    outcome = RecordingOutcome([TRACE], None, [], 2.5, "The script failed (exit code 5) after 12 steps.")
    monkeypatch.setattr(run_script, "record", lambda *_, **__: (5, outcome))
    shown = CliRunner().invoke(cli, ["run", "--json", "result.json", "train.py"])
    assert shown.exit_code == 5
    assert "The script failed (exit code 5) after 12 steps." in shown.stdout
    result = json.loads(Path("result.json").read_text())
    assert result["verdict"].startswith("The script failed (exit code 5) after 12 steps. ")
    assert result["warnings"][0].endswith("The report covers the steps that were recorded before.")
    assert "<span>The script failed (exit code 5) after 12 steps.</span>" in Path("traceopt-report.html").read_text()
