"""A recorded script cannot tell that it is recorded: same output, exit code, modules, numbers and losses."""

from __future__ import annotations

import os
import re
import shlex
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
    assert re.search(r"warned at \[\('\w+\.py', \d+\)\]", bare.stdout)
    assert "to stderr\n" in run.stderr
    assert [list(trace.steps) for trace in run.traces] == [[8, 9, 10, 11, 12], [17, 18]]


EVERY_BACKWARD = ("--step-on", "backward")

ENDINGS = {
    "exit": (3, "exit handler ran\n", ""),
    "message": (1, "exit handler ran\n", "a last word\n"),
    "at-once": (5, "", ""),
    "SIGTERM": (-signal.SIGTERM, "", ""),
    "SIGSEGV": (-signal.SIGSEGV, "", ""),
}


@pytest.mark.parametrize(
    ("how", "code", "stdout", "stderr"),
    [
        pytest.param(how, *end, marks=pytest.mark.run("endings.py", how, "11", options=EVERY_BACKWARD))
        for how, end in ENDINGS.items()
    ],
)
def test_every_way_to_end_stays_the_same(run: Run, how: str, code: int, stdout: str, stderr: str) -> None:
    assert (run.code, run.stdout, of_script(run.stderr)) == (code, stdout, stderr)
    if how.startswith("SIG"):
        assert "the command was killed while traceopt was recording" in run.stderr
    else:
        check_kept(run)


@pytest.mark.run("endings.py", "exception", "11", options=EVERY_BACKWARD)
def test_an_exception_has_the_traceback_of_the_bare_run(run: Run, bare: Run) -> None:
    assert (run.code, run.stdout, of_script(run.stderr)) == (bare.code, bare.stdout, bare.stderr)
    assert "ValueError: broken" in bare.stderr
    check_kept(run)


@pytest.mark.run("endings.py", "SIGINT", "11", options=EVERY_BACKWARD)
def test_ctrl_c_ends_with_the_signal_and_keeps_the_trace(run: Run) -> None:
    assert (run.code, run.stdout) == (-signal.SIGINT, "exit handler ran\n")
    assert of_script(run.stderr).endswith("\nKeyboardInterrupt\n")
    check_kept(run)


def of_script(stderr: str) -> str:
    """Without traceopt's own lines."""
    lines = stderr.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(("traceopt: ", "Traces: ", "Saving ", "Recorded ")))


def check_kept(run: Run) -> None:
    """Eleven backwards end eleven steps; 8, 9 and 10 were recorded completely."""
    [trace] = run.traces
    assert list(trace.steps) == [8, 9, 10]
    assert "traceopt: the timing cycle has 3 of 5 steps: the run ended" in run.stderr


@pytest.mark.slow
@pytest.mark.parametrize("to", ["traceopt", "all"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_script_once(tmp_path: Path, number: signal.Signals, to: str) -> None:
    """A terminal and some job schedulers signal all processes; kill and others only the one that they started."""
    script = tmp_path / "script.py"
    script.write_text(f"""
import signal, time
received = []
signal.signal({int(number)}, lambda number, _: received.append(number))
print("ready", flush=True)
while not received:
    time.sleep(0.01)
time.sleep(1)  # a second one would arrive
raise SystemExit(len(received) + 10)
""")
    process = subprocess.Popen(
        traceopt_run("--no-analyze", str(script)),
        env=environment(),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    time.sleep(0.3)
    (os.killpg if to == "all" else os.kill)(process.pid, number)
    process.communicate(timeout=30)
    assert process.returncode == 11


@pytest.mark.torch
def test_a_signal_that_kills_the_script_kills_traceopt(tmp_path: Path) -> None:
    options = ("--logdir", str(tmp_path), "--no-analyze", *EVERY_BACKWARD)
    command = traceopt_run(*options, str(SCRIPTS / "endings.py"), "wait", "20")
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGTERM
    assert len(list(tmp_path.glob("*.pt.trace.json.gz"))) == 2


def test_an_ignored_ctrl_c_stays_ignored(tmp_path: Path) -> None:
    """A shell starts background jobs so: neither the script nor traceopt ends by it."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal\n"
        "for process in os.getppid(), os.getpid():\n"
        "    os.kill(process, signal.SIGINT)\n"
        "print(signal.getsignal(signal.SIGINT).name)\n"
    )
    command = shlex.join(traceopt_run("--no-analyze", str(script)))
    shell = ["/bin/sh", "-c", f"trap '' INT; exec {command}"]
    done = subprocess.run(shell, env=environment(), cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "SIG_IGN\n")


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
    """Nothing slow is loaded: json, socket, dataclasses and the like wait for torch, which needs them anyway."""
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
    free = {"collections.abc", "importlib.machinery", *sys.builtin_module_names}
    assert {name for name in extra if not name.startswith("_traceopt_capture")} <= free
