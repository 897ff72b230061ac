"""Recordings that wait for slow steps, for a time, or for a request."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from runs import SCRIPTS, Runner, Trace, environment, traceopt_run
from support.command_line import one_error, run

from traceopt.capture.recording import requests
from traceopt.capture.recording.trigger import LEAST_STEPS, RANKS_APART_STEPS, StepTrigger
from traceopt.capture.settings import SLOW_STEPS, Trigger


def one_rank() -> int:
    return 1


def first_due(trigger: StepTrigger, steps_us: list[float]) -> int | None:
    """The step with which the recording begins."""
    for step, us in enumerate(steps_us, 1):
        trigger.step_ended(us)
        if trigger.is_due(step, one_rank):
            return step
    return None


def test_a_slow_phase_is_a_reason_and_a_slow_step_is_none(tmp_path: Path) -> None:
    usual = [100.0] * 40
    when = Trigger(slow_factor=1.3)
    assert first_due(StepTrigger(when, str(tmp_path)), [*usual, 900.0, *usual, 900.0, *usual]) is None
    assert first_due(StepTrigger(when, str(tmp_path)), [*usual, *[140.0] * 10]) == len(usual) + SLOW_STEPS


def test_the_first_steps_are_no_reason(tmp_path: Path) -> None:
    trigger = StepTrigger(Trigger(slow_factor=1.3), str(tmp_path))
    assert first_due(trigger, [10_000.0, 5_000.0, 900.0, *[100.0] * LEAST_STEPS]) is None


def test_a_limit_and_a_time(tmp_path: Path) -> None:
    assert first_due(StepTrigger(Trigger(slow_us=250e3), str(tmp_path / "a")), [300e3] * 2) is None
    for name, trigger, step in (("slow", Trigger(slow_us=250e3), 6), ("late", Trigger(after_s=0.0), 1)):
        (tmp_path / name).mkdir()
        assert first_due(StepTrigger(trigger, str(tmp_path / name)), [300e3] * 9) == step


def test_all_ranks_begin_at_one_step(tmp_path: Path) -> None:
    ranks = [StepTrigger(Trigger(on_request=True), str(tmp_path)) for _ in range(3)]
    requests.ask(str(tmp_path))
    due: list[list[int]] = [[], [], []]
    for step in range(10):
        for number, rank in enumerate(ranks):
            if step >= number and rank.is_due(step - number, lambda: 3):  # each one is a step behind the last
                due[number].append(step - number)
    assert [steps[0] for steps in due] == [RANKS_APART_STEPS] * 3
    assert not requests.asked(str(tmp_path))


def test_only_a_request_begins_another_recording(tmp_path: Path) -> None:
    trigger = StepTrigger(Trigger(after_s=0.0, on_request=True), str(tmp_path))
    assert trigger.is_due(1, one_rank)
    trigger.begun()
    assert not trigger.is_due(9, one_rank)
    requests.ask(str(tmp_path))
    assert trigger.is_due(10, one_rank)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--record-when", "loss > 3"), 'expected "step > 1.3 * median"'),
        (("--record-at", "soon"), "expected a time such as 90s"),
    ],
)
def test_mistakes_are_one_line(options: tuple[str, str], message: str) -> None:
    assert message in one_error(run("run", *options, "train.py"))


def test_a_process_of_no_run_takes_no_request() -> None:
    assert "was not started by traceopt run" in one_error(run("record", str(os.getpid())))


@pytest.mark.torch
def test_the_slow_phase_is_in_the_trace(tmp_path: Path) -> None:
    options = ("--record-when", "step > 2 * median", "--preset", "timing", "--no-analyze")
    [trace] = Runner(tmp_path).run("phases.py", "120", options=options).traces
    assert set(trace.steps) < set(range(60, 90))


@pytest.mark.torch
def test_a_run_that_never_became_slow_says_so(tmp_path: Path) -> None:
    done = Runner(tmp_path).run("phases.py", "30", options=("--record-when", "step > 10s", "--no-analyze"))
    assert done.code == 0
    assert "the recording never began in 30 steps" in done.stderr


@pytest.mark.torch
def test_signals_in_each_state_hurt_nothing_and_each_set_of_traces_has_its_folder(tmp_path: Path) -> None:
    options = ("--record-on-request", "--preset", "quick", "--no-analyze", "--logdir", str(tmp_path / "logs"))
    command = traceopt_run(*options, str(SCRIPTS / "phases.py"), "60")
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        script = int(process.stdout.readline())
        while process.poll() is None:
            for number in (script, process.pid):
                try:
                    os.kill(number, signal.SIGUSR2)
                except ProcessLookupError:
                    continue
            time.sleep(0.01)
    assert process.returncode == 0
    folders = [tmp_path / "logs", tmp_path / "logs" / "recording-2"]
    cycles = [sorted(Trace(path).cycle for path in folder.glob("*.pt.trace.json.gz")) for folder in folders]
    assert cycles == [["detail", "timing"]] * 2
