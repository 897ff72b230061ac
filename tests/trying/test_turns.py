"""Runs that train in turns: one is stopped, with all of its processes, while the other goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import groupby
from pathlib import Path

import pytest
from projects import Project
from support.waiting import until

from traceopt.trying import timed_runs
from traceopt.trying.changes import Change
from traceopt.trying.measured_run import Failure, MeasuredRun
from traceopt.trying.running import processes
from traceopt.trying.running.interruption import Interruption
from traceopt.trying.running.processes import EndedError, Script
from traceopt.trying.timed_runs import Limits, TimedRuns
from traceopt.trying.workspace import Command, Workspace

LIMITS = Limits(10, 5, 60.0)

pytestmark = pytest.mark.slow  # each starts processes

# Takes a turn after each step, has a worker that counts, and says when it worked.
TRAINING = """
import json, os, subprocess, sys, time, types
from traceopt.capture.metadata.step_ledger import LedgerWriter
from traceopt.capture.recording.timed_steps import Turns

worker = subprocess.Popen([sys.executable, "-c", "while True: print('x', flush=True)"], stdout=open("worker", "w"))
device = types.SimpleNamespace(is_initialized=lambda: False)
distributed = types.SimpleNamespace(is_available=lambda: False)
turns, ledger = Turns(types.SimpleNamespace(cuda=device, distributed=distributed), 0.0), LedgerWriter(lambda: None)
for step in range(4):
    ledger.close_step()
    turns.step_ended()
    ledger.open_step()
worker.kill()
with open("result.json", "w") as file:
    json.dump({"steps_us": ledger.document()["step_us"], "stopped_s": turns.stopped_s}, file)
"""


@pytest.fixture
def training(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAINING)
    return tmp_path


def started(folder: Path, words: str = "train.py", time_limit_s: float | None = None) -> Script:
    with (folder / "output").open("wb") as output:
        return Script([sys.executable, words], dict(os.environ), folder, output, time_limit_s)


def nothing() -> None:
    return None


def test_a_run_stops_with_its_workers_and_no_step_contains_the_stop(training: Path) -> None:
    began, waited_s, turns = time.monotonic(), 0.0, 0
    with started(training) as script:
        while (code := script.advance(nothing)) is None:
            stopped = time.monotonic()
            turns += 1
            size = (training / "worker").stat().st_size
            time.sleep(0.2)
            assert (training / "worker").stat().st_size == size, "the worker went on"
            waited_s += time.monotonic() - stopped
        assert code == 0, (training / "output").read_text()
    result = json.loads((training / "result.json").read_text())
    assert turns == 4
    assert result["stopped_s"] >= waited_s
    assert sum(result["steps_us"]) / 1e6 <= time.monotonic() - began - waited_s


def test_a_stopped_run_is_ended(training: Path) -> None:
    with started(training) as script:
        assert script.advance(nothing) is None
        assert processes._resident_bytes(script._child.pid) is not None
    assert script._child.returncode is not None, "a process is left"


def test_the_time_limit_is_that_of_the_own_turns(training: Path) -> None:
    (training / "hangs.py").write_text("import os, signal, time\nos.killpg(0, signal.SIGSTOP)\ntime.sleep(600)\n")
    with started(training, "hangs.py", time_limit_s=1.0) as script:
        assert script.advance(nothing) is None
        took_s = script._took_s
        time.sleep(1.0)
        assert script._took_s == took_s
        with pytest.raises(EndedError, match="longer than 1 s"):
            script.advance(nothing)


def test_a_run_goes_on_if_the_program_that_started_it_is_killed(training: Path) -> None:
    """Otherwise it would stay stopped forever, and keep its memory."""
    starter = "import subprocess, sys; subprocess.Popen([sys.executable, 'train.py'], start_new_session=True).wait()"
    with subprocess.Popen([sys.executable, "-c", starter], cwd=training) as program:
        until(lambda: any(_is_stopped(path) for path in _children(program.pid)))
        program.send_signal(signal.SIGKILL)
    until((training / "result.json").exists)


def _children(parent: int) -> list[Path]:
    return [path for path in Path("/proc").glob("[0-9]*/stat") if _fields(path)[1:2] == [str(parent)]]


def _is_stopped(path: Path) -> bool:
    return _fields(path)[:1] == ["T"]


def _fields(path: Path) -> list[str]:
    try:
        return path.read_text().rpartition(")")[2].split()
    except OSError:
        return []


def runs_of(project: Project, logs: Path, **environment: str) -> list[MeasuredRun | Failure | None]:
    command = Command(("job/train.py",), False, project.folder)
    with (
        pytest.MonkeyPatch.context() as patched,
        Interruption() as interruption,
        Workspace(command, logs, interruption) as workspace,
    ):
        for name, value in environment.items():
            patched.setenv(name, value)
        return TimedRuns(workspace, LIMITS)([[], []])


def test_runs_that_cannot_be_side_by_side_have_the_machine_for_themselves(project: Project, tmp_path: Path) -> None:
    """The second one crashes, as it finds a lock of the first. Alone, none of them takes a turn."""
    lock = tmp_path / "lock"
    runs = runs_of(project, tmp_path / "logs", LOCK=str(lock))
    assert [type(run) for run in runs] == [MeasuredRun, MeasuredRun]
    assert lock.exists(), "the first one was ended while it was stopped"


def test_without_room_the_second_starts_when_the_first_has_ended(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "available_memory_bytes", lambda: 1)
    lock = tmp_path / "lock"
    runs = runs_of(project, tmp_path / "logs", LOCK=str(lock))
    assert [type(run) for run in runs] == [MeasuredRun, MeasuredRun]
    assert not lock.exists()


def test_too_few_steps(project: Project, tmp_path: Path) -> None:
    command = Command(("job/train.py",), False, project.folder)
    with Interruption() as interruption, Workspace(command, tmp_path / "logs", interruption) as workspace:
        [run] = TimedRuns(workspace, Limits(1, 1, 60.0))([[]])
    assert isinstance(run, Failure)
    assert run.reason == "nothing was measured: it ended after 2 steps, which are too few"


@pytest.mark.torch
def test_trainings_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each trains several times for a while, the other one in between, and the losses are those of a run alone."""
    monkeypatch.setattr(timed_runs, "TURN_S", 0.0)
    order = tmp_path / "order"
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "train.py").write_text(
        "import sys, torch\n"
        "model = torch.nn.Linear(4, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "while True:\n"
        f"    open({str(order)!r}, 'a').write(sys.argv[1])\n"
        "    model(torch.randn(8, 4)).square().mean().backward()\n"
        "    optimizer.step()\n"
        "    optimizer.zero_grad()\n"
    )
    sides = [[Change(name, "arguments", name, "arguments", arguments=(name,))] for name in "AB"]
    command = Command(("train.py",), False, tmp_path / "job")
    with Interruption() as interruption, Workspace(command, tmp_path / "logs", interruption) as workspace:
        runs = TimedRuns(workspace, Limits(12, 4, 120.0))
        first, second = runs(sides)
        turns = ["".join(of_one) for _, of_one in groupby(order.read_text())]
        [alone] = runs(sides[:1])
    assert turns == ["A" * 4, "B" * 4, *"AB" * 8]
    assert isinstance(first, MeasuredRun)
    assert isinstance(second, MeasuredRun)
    assert isinstance(alone, MeasuredRun)
    assert first.losses == second.losses == alone.losses
