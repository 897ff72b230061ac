"""Comparing and gating on the command line: exit codes, baselines, and errors of one line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.command_line import one_error, run

from traceopt import run_script
from traceopt.api import analyze
from traceopt.capture.launch.outcome import RecordingOutcome
from traceopt.result.comparison import Comparison
from traceopt.result.document import Result

TRACES = Path(__file__).resolve().parents[1] / "fixtures" / "traces"
HEALTHY, SLOW = str(TRACES / "healthy.json.gz"), str(TRACES / "slow_loader.json.gz")


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    return {"healthy": analyze(HEALTHY), "slow": analyze(SLOW)}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, results: dict[str, Result]) -> None:
    """A folder with the results of a healthy and of a slow run."""
    monkeypatch.chdir(tmp_path)
    for name, result in results.items():
        Path(f"{name}.json").write_bytes(result.to_json())


def test_compare_prints_and_writes_every_format() -> None:
    outcome = run("compare", "healthy.json", "slow.json", "--html", "c.html", "--markdown", "c.md", "--json", "c.json")
    assert outcome.exit_code == 0
    assert "The step takes 52% more time: 17.3 ms → 26.4 ms." in outcome.stdout
    comparison = Comparison.from_json(Path("c.json").read_bytes())
    assert comparison.step.verdict == "slower"
    assert comparison.verdict in Path("c.html").read_text(encoding="utf-8").replace("\N{NO-BREAK SPACE}", " ")
    assert Path("c.md").read_text(encoding="utf-8").startswith("<!-- traceopt:")
    assert Comparison.from_json(run("compare", "healthy.json", "slow.json", "--json", "-").stdout_bytes) == comparison
    markdown = run("compare", "healthy.json", "slow.json", "--format", "markdown").stdout
    assert markdown == Path("c.md").read_text(encoding="utf-8")


def test_several_runs_by_option_and_by_glob() -> None:
    for number in (1, 2, 3):
        shutil.copy("healthy.json", f"base-{number}.json")
    by_option = run(
        "compare", "base-1.json", "slow.json", "--base", "base-2.json", "--base", "base-3.json", "--json", "-"
    )
    by_glob = run("compare", "base-*.json", "slow.json", "--json", "-")
    assert by_option.stdout == by_glob.stdout
    assert len(json.loads(by_glob.stdout)["base"]["runs"]) == 3


def test_a_failed_gate_is_exit_code_1_and_the_last_line() -> None:
    arguments = ("compare", "healthy.json", "slow.json", "--fail-on", "step_time=+5%")
    outcome = run(*arguments)
    assert outcome.exit_code == 1
    assert outcome.stdout.splitlines()[-1].startswith("FAIL  step_time is 52% worse than the baseline")
    assert run(*arguments, "--exit-zero").exit_code == 0
    assert run("compare", "slow.json", "healthy.json", "--fail-on", "step_time=+5%").exit_code == 0


def test_a_warning_is_no_failure() -> None:
    outcome = run("compare", "healthy.json", "slow.json", "--warn-on", "step_time=+5%,finding=new-high")
    assert outcome.exit_code == 0
    assert [line[:4] for line in outcome.stdout.splitlines()[-2:]] == ["WARN", "WARN"]


def test_what_was_not_measured_fails_the_gate_and_only_warns_as_a_warning() -> None:
    outcome = run("compare", "healthy.json", "slow.json", "--fail-on", "peak_memory=+5%")
    assert outcome.exit_code == 1
    assert outcome.stdout.splitlines()[-1].startswith("NOT CHECKED  peak_memory was not measured in the baseline")
    assert run("compare", "healthy.json", "slow.json", "--warn-on", "peak_memory=+5%").exit_code == 0


def test_gates_of_other_formats_stand_on_stderr() -> None:
    outcome = run("compare", "healthy.json", "slow.json", "--format", "json", "--fail-on", "gpu_idle=90%")
    assert Comparison.from_json(outcome.stdout_bytes).gates[0].status == "passed"
    assert outcome.stderr.startswith("ok    gpu_idle is ")
    analyzed = run("analyze", SLOW, "--no-html", "--format", "json", "--fail-on", "high")
    assert (analyzed.exit_code, analyzed.stderr) == (1, "FAIL  findings of high impact: DL001 (--fail-on high)\n")
    assert Result.from_json(analyzed.stdout_bytes).findings


def test_analyze_writes_a_baseline_and_compares_with_it() -> None:
    assert run("analyze", HEALTHY, "--no-html", "--write-baseline", "base.json").exit_code == 0
    baseline = Result.from_json(Path("base.json").read_bytes())
    assert (baseline.timeline, baseline.memory.curve) == (None, [])
    outcome = run("analyze", SLOW, "--no-html", "--baseline", "base.json", "--fail-on", "finding=new-high")
    assert outcome.exit_code == 1
    assert "Against base.json: The step takes 52% more time" in outcome.stdout
    assert outcome.stdout.splitlines()[-1] == "FAIL  new findings of high impact: DL001 (--fail-on finding=new-high)"
    same = run("analyze", HEALTHY, "--no-html", "--baseline", "base.json", "--fail-on", "step_time=+1%,finding=new-low")
    assert same.exit_code == 0
    assert "Within noise: 17.3 ms → 17.3 ms per step." in same.stdout


def test_a_report_is_a_baseline() -> None:
    assert run("analyze", HEALTHY, "--static", "--html", "base.html").exit_code == 0
    outcome = run("analyze", SLOW, "--no-html", "--baseline", "base.html")
    assert "Against base.html: The step takes 52% more time" in outcome.stdout


def test_a_baseline_can_be_replaced_by_the_run_that_it_judges() -> None:
    shutil.copy("healthy.json", "base.json")
    assert run("analyze", SLOW, "--no-html", "--baseline", "base.json", "--write-baseline", "base.json").exit_code == 0
    outcome = run("analyze", SLOW, "--no-html", "--baseline", "base.json", "--fail-on", "step_time=+1%")
    assert outcome.exit_code == 0


def test_settings_name_gates_and_baseline_and_the_command_line_wins() -> None:
    Path("settings").mkdir()
    shutil.copy("healthy.json", "settings/base.json")
    Path("settings/traceopt.toml").write_text(
        'html = false\nbaseline = ["base.json"]\nfail-on = ["step_time=+5%"]\nwarn-on = ["high"]\n'
    )
    outcome = run("analyze", SLOW, "--config", "settings/traceopt.toml")
    assert outcome.exit_code == 1
    assert [line[:4] for line in outcome.stdout.splitlines()[-2:]] == ["FAIL", "WARN"]
    assert run("analyze", SLOW, "--config", "settings/traceopt.toml", "--fail-on", "step_time=+90%").exit_code == 0
    assert run("analyze", SLOW, "--config", "settings/traceopt.toml", "--baseline", "slow.json").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "healthy.json"], "expected BASE and HEAD"),
        (["compare", "gone.json", "slow.json"], "no such file or folder: gone.json"),
        (["compare", "healthy.json", "slow.json", "--fail-on", "gpu_idel=1"], "did you mean 'gpu_idle'?"),
        (["compare", "healthy.json", "slow.json", "--fail-on", "gpu_idle=40"], "a share is at most 1 (100%)"),
        (["compare", "healthy.json", "slow.json", "--json", "healthy.json"], "cannot write healthy.json"),
        (["compare", "healthy.json", "slow.json", "--html", "gone/c.html"], "the folder gone does not exist"),
        (["analyze", SLOW, "--fail-on", "step_time=+5%"], "needs a run to compare with: add --baseline FILE"),
        (["analyze", SLOW, "--baseline", "gone.json"], "no such file or folder: gone.json"),
        (["analyze", SLOW, "--write-baseline", "gone/b.json"], "the folder gone does not exist"),
        (["run", "--no-analyze", "--fail-on", "high", "train.py"], "need the analysis"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str) -> None:
    assert message in one_error(run(*arguments))


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, list[str]], None]:
    """`recorded(code, traces)`: what the script of `traceopt run` ends with."""

    def fake(code: int, traces: list[str]) -> None:
        Path("train.py").touch()
        recording = replace(EMPTY, traces=[Path(trace) for trace in traces])
        monkeypatch.setattr(run_script, "record", lambda *_, **__: (code, recording))

    return fake


EMPTY = RecordingOutcome(traces=[], reason=None, notes=[], saving_s=0.0)


def test_run_ends_with_1_for_a_failed_gate_and_with_the_scripts_code_before_that(
    recorded: Callable[[int, list[str]], None],
) -> None:
    arguments = ("run", "--no-html", "--baseline", "healthy.json", "--fail-on", "step_time=+5%", "train.py")
    recorded(0, [SLOW])
    outcome = run(*arguments)
    assert outcome.exit_code == 1
    assert outcome.stdout.splitlines()[-1].startswith("FAIL  step_time")
    recorded(3, [SLOW])
    assert run(*arguments).exit_code == 3
    recorded(0, [HEALTHY])
    assert run(*arguments).exit_code == 0
    recorded(0, [])
    unrecorded = run(*arguments)
    assert unrecorded.exit_code == 1
    assert "NOT CHECKED" in unrecorded.stderr
