"""A recorded script cannot tell that it is recorded: the same output, exit code, modules, numbers and losses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runs import SCRIPTS, Run, environment, traceopt_run


@pytest.mark.run("equality.py", "--lr", "0.1", "two words", "-m")
def test_output_is_the_same_to_the_last_bit(run: Run, bare: Run) -> None:
    assert run.code == bare.code == 0
    assert run.stdout.replace(str(run.folder.parent), "") == bare.stdout.replace(str(bare.folder.parent), "")
    assert "loss" in bare.stdout
    assert "to stderr\n" in run.stderr
    assert [list(trace.steps) for trace in run.traces] == [[8, 9, 10, 11, 12], [17, 18]]


ENDINGS = {"exit": 3, "message": 1, "exception": 1, "at-once": 5, "SIGINT": -2, "SIGTERM": -15, "SIGKILL": -9}


@pytest.mark.parametrize(
    ("how", "code"),
    [pytest.param(how, code, marks=pytest.mark.run("endings.py", how, "11")) for how, code in ENDINGS.items()],
)
def test_every_way_to_end_stays_the_same(run: Run, bare: Run, how: str, code: int) -> None:
    assert run.code == bare.code == code
    assert run.stdout == bare.stdout
    own = [line for line in run.stderr.splitlines() if not line.startswith(("traceopt: ", "Traces: ", "Recorded "))]
    assert own == bare.stderr.splitlines()
    if how in ("SIGTERM", "SIGKILL"):
        assert "the command was killed while traceopt was recording" in run.stderr
    else:
        [trace] = run.traces
        assert list(trace.steps) == [8, 9, 10]
        assert "the timing cycle holds 3 of 5 steps: the run ended" in run.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_traceopt_reaches_the_script(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C goes to the whole group, as from a terminal; SIGTERM to traceopt alone, as from a job scheduler."""
    command = traceopt_run("--logdir", str(tmp_path), "--no-analyze", str(SCRIPTS / "endings.py"), "wait", "20")
    process = subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    time.sleep(0.3)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == -number
    assert len(list(tmp_path.glob("*.pt.trace.json.gz"))) == 2


def test_a_sitecustomize_of_the_user_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.MINE = 'ran'")
    script = tmp_path / "script.py"
    script.write_text("import builtins, sys; print(builtins.MINE, sys.modules['sitecustomize'].__file__)")
    done = subprocess.run(
        traceopt_run("--no-analyze", str(script)),
        env=environment(PYTHONPATH=str(tmp_path)),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == f"ran {tmp_path / 'sitecustomize.py'}\n"


def test_the_agent_costs_a_python_that_does_not_train_next_to_nothing(tmp_path: Path) -> None:
    """No module is loaded that the interpreter did not need anyway, but for the agent's own three."""
    code = "import sys; print(sorted(m for m in sys.modules if m.split('.')[0] not in ('site', 'sitecustomize')))"
    script = tmp_path / "modules.py"
    script.write_text(code)
    bare = subprocess.run([sys.executable, script], env=environment(), capture_output=True, text=True, timeout=60)
    done = subprocess.run(
        traceopt_run("--no-analyze", str(script)),
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    extra = set(eval(done.stdout)) - set(eval(bare.stdout))  # noqa: S307
    assert {name for name in extra if not name.startswith("_traceopt_capture")} <= {"importlib.machinery"}
