"""Starts the user's command, unchanged, with the agent in its environment; its end becomes ours.

The command is a child process: only so are its arguments, modules, signals and exit code those of the bare run, and
every rank of torchrun is recorded.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

FORWARDED = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
POLL_S = 0.2


class CommandError(Exception):
    """The command could not be started; the message says why."""


def command_line(arguments: Sequence[str], module: bool) -> list[str]:
    """What is started: a script or `-m module` gets this Python in front, anything else runs as it is.

    Raises CommandError for a script or program that does not exist.
    """
    first = arguments[0]
    if module:
        return [sys.executable, "-m", *arguments]
    path = Path(first)
    if first.endswith((".py", ".pyc", ".pyz")) or (path.is_dir() and (path / "__main__.py").exists()):
        if not path.exists():
            raise CommandError(f"no such script: {first}")
        return [sys.executable, *arguments]
    beside_python = str(Path(sys.executable).parent)  # torchrun of a virtual environment that is not activated
    found = shutil.which(first) or shutil.which(first, path=beside_python)
    if found is None:
        if path.is_file():
            raise CommandError(f"cannot start {first}: it is not executable; for a Python script write python {first}")
        raise CommandError(f"cannot start {first}: no such script or program")
    return [found, *arguments[1:]]


def child_environment(control: Path) -> dict[str, str]:
    """This environment, with the agent's sitecustomize first in PYTHONPATH."""
    inject = str(Path(__file__).resolve().parents[1] / "inject")
    path = os.environ.get("PYTHONPATH")
    return {
        "KINETO_LOG_LEVEL": "99",  # or the profiler writes its own lines between the script's
        **os.environ,
        "PYTHONPATH": inject + os.pathsep + path if path else inject,
        "TRACEOPT_CONTROL": str(control),
    }


def run_command(command: Sequence[str], environment: dict[str, str], poll: Callable[[], None]) -> int:
    """Runs it to its end, calling `poll` meanwhile; returns its code, or minus the signal that killed it.

    A terminal sends Ctrl-C to both of us: the child's answer to it counts. Other signals are passed on. Raises
    CommandError.
    """
    try:
        child = subprocess.Popen(command, env=environment)  # noqa: S603 - it is the user's own command
    except OSError as error:
        raise CommandError(f"cannot start {command[0]}: {error.strerror}") from error

    def forward(number: int, _: FrameType | None) -> None:
        if child.poll() is None:
            child.send_signal(number)

    restored = {signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN)}  # only now: a child inherits it
    for name in FORWARDED:
        if hasattr(signal, name):
            number = getattr(signal, name)
            restored[number] = signal.signal(number, forward)
    try:
        while True:
            try:
                return child.wait(POLL_S)
            except subprocess.TimeoutExpired:
                poll()
    finally:
        for number, handler in restored.items():
            signal.signal(number, handler)


def end_alike(code: int) -> NoReturn:
    """Ends this process as the command ended: with its exit code, or by the same signal."""
    sys.stdout.flush()
    sys.stderr.flush()
    if code < 0:
        number = -code
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        _forbid_core_dump()
        os.kill(os.getpid(), number)
    raise SystemExit(code if code >= 0 else 128 - code)


def _forbid_core_dump() -> None:
    """The command has left one if it was to; a second one, of ours, would only hide it."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    except (ImportError, OSError, ValueError):
        return
