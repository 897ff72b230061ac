"""Each training of the crowd, bare and under `traceopt run`. `make test` runs the quick ones, `make crowd` all."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from runs import TIMEOUT_S, Run, environment, traceopt_run
from trainings import ALL, SCRIPTS, TRAININGS, Training

import traceopt.capture

AGENT = Path(traceopt.capture.__file__).resolve().parent

Test = Callable[..., None]


@dataclass(frozen=True)
class Recorded(Run):
    """A training that has ended, and the result document of its analysis."""

    document: Path

    @cached_property
    def findings(self) -> list[dict[str, Any]]:
        findings: list[dict[str, Any]] = json.loads(self.document.read_text())["findings"]
        return findings

    @cached_property
    def true_steps(self) -> dict[int, int]:
        """By process."""
        return {int(path.stem): path.stat().st_size for path in self.document.parent.glob("*.steps")}

    @cached_property
    def agent_calls(self) -> list[float]:
        """Per step, of each process that counted them."""
        return [float(path.read_text()) for path in self.document.parent.glob("*.calls")]


class Crowd:
    """Runs trainings, each once in each way."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._runs: dict[tuple[str, str], Recorded] = {}

    def bare(self, training: Training) -> Recorded:
        return self._once("bare", training, [])

    def recorded(self, training: Training) -> Recorded:
        options = ["--no-html", "--write-baseline", "../result.json", "--logdir", "../logs", "--"]
        return self._once("recorded", training, traceopt_run(*options))

    def counted(self, training: Training) -> Recorded:
        """Never recorded, so that what is counted is what the agent costs the rest of a run."""
        options = ["--no-analyze", "--wait", "1000000", "--logdir", "../logs", "--"]
        return self._once("counted", training, traceopt_run(*options), CROWD_AGENT=str(AGENT))

    def _once(self, how: str, training: Training, before: list[str], **variables: str) -> Recorded:
        if training.lacks:
            pytest.skip(training.lacks)
        key = (how, training.name)
        if key not in self._runs:
            folder = self._folder / f"{len(self._runs)}"
            (folder / "work").mkdir(parents=True)
            done = subprocess.run(
                [*before, *(training.command or (sys.executable,)), str(training.script), *training.words[1:]],
                env=environment(PYTHONPATH=str(SCRIPTS), CROWD_STEPS=str(folder), **variables),
                cwd=folder / "work",
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
            )
            self._runs[key] = Recorded(
                done.returncode, done.stdout, done.stderr, folder / "logs", folder / "result.json"
            )
        return self._runs[key]


@pytest.fixture(scope="session")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Crowd:
    return Crowd(tmp_path_factory.mktemp("crowd"))


@pytest.fixture
def recorded(crowd: Crowd, scenario: Training) -> Recorded:
    return crowd.recorded(scenario)


def of_each_training(test: Test) -> Test:
    """Tests with the same `scenario` run in one process of `pytest -n`."""
    return of_each(test, [training for training in TRAININGS if training.quick or ALL])


def of_one_training(test: Test) -> Test:
    """`make crowd` runs it for all."""
    return of_each(test, [training for training in TRAININGS if training.name == "GAN" or ALL])


def of_each(test: Test, trainings: list[Training]) -> Test:
    parameters = [pytest.param(training, id=training.name.replace(" ", "-")) for training in trainings]
    return pytest.mark.parametrize("scenario", parameters)(test)


@of_each_training
def test_the_script_behaves_as_without_traceopt(crowd: Crowd, recorded: Recorded, scenario: Training) -> None:
    bare = crowd.bare(scenario)
    assert bare.code == scenario.code, bare.stderr
    assert recorded.code == bare.code, recorded.stderr
    summary = without_log_lines(recorded.stdout).removeprefix(without_log_lines(bare.stdout))
    assert summary.startswith("traceopt  "), summary
    assert sorted(recorded.true_steps.values()) == sorted(bare.true_steps.values())


def without_log_lines(text: str) -> str:
    """DeepSpeed prints when it looked for a device: "[2026-11-23 05:55:57,035] [INFO] ..."."""
    return re.sub(r"^\[\d{4}-\d\d-\d\d .*\n", "", text, flags=re.M)


@of_each_training
def test_each_step_is_a_true_step(recorded: Recorded, scenario: Training) -> None:
    assert recorded.traces, recorded.stderr
    assert {trace.metadata["step_rule"] for trace in recorded.traces} == {scenario.rule}
    cycles = Counter((trace.metadata["pid"], trace.cycle) for trace in recorded.traces)
    assert cycles == Counter((process, cycle) for process in recorded.true_steps for cycle in ("timing", "detail"))
    assert len(recorded.true_steps) == scenario.processes
    for trace in recorded.traces:
        ledger = trace.metadata["ledger"]
        counted = len(ledger["step_us"]) + ledger["later_steps"]
        expected = recorded.true_steps[trace.metadata["pid"]] - scenario.uncounted
        assert abs(counted - expected) <= 1  # nothing ends the last step of a run that reads no further batch
        assert true_steps_within(trace.document, trace.steps) == dict.fromkeys(trace.steps, 1)
        assert len(trace.steps) == trace.metadata["cycle"]["active"]


def true_steps_within(document: dict[str, Any], steps: dict[int, Counter[str]]) -> dict[int, int]:
    """How often the script said that a step is done, in each of these steps."""
    ranges = [e for e in document["traceEvents"] if e.get("cat") == "user_annotation" and e["ph"] == "X"]
    said = [e["ts"] for e in ranges if e["name"] == "true step"]
    within = {e["name"]: sum(e["ts"] <= ts < e["ts"] + e["dur"] for ts in said) for e in ranges}
    return {number: within[f"ProfilerStep#{number}"] for number in steps}


@of_each_training
def test_the_planted_fault_is_found(recorded: Recorded, scenario: Training) -> None:
    found = {finding["code"]: finding for finding in recorded.findings}
    if not scenario.faults:
        assert not any(code.startswith(("DL", "LG", "CM")) and is_high(found[code]) for code in found)
        return
    planted = [found[code] for code in scenario.faults if code in found]
    assert planted, list(found)
    assert any(is_high(finding) for finding in planted)
    lines = [place for finding in planted for place in finding["locations"]]
    if lines:  # a comparison of ranks has none
        assert any(
            place["file"].endswith(scenario.script.name) and place["line"] in scenario.planted_lines for place in lines
        ), lines


def is_high(finding: dict[str, Any]) -> bool:
    return bool(finding["impact"] == "high")


@of_one_training
def test_the_agent_does_little_in_each_step(crowd: Crowd, scenario: Training) -> None:
    """Calls are counted, because their time depends on what else the machine does."""
    counted = crowd.counted(scenario)
    assert len(counted.agent_calls) >= scenario.processes, counted.stderr
    assert max(counted.agent_calls) <= scenario.agent_calls
