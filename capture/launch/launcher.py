"""Starts the user's command, unchanged, with the agent in its environment, and exits the way the command does.

The command is a child process: only then are its arguments, modules, signals and exit code those of a run without
traceopt, and every rank of torchrun is recorded.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from .group_member import GroupMember

FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
POLL_S = 0.2


class CommandError(Exception):
    """The command could not be started; the message says why."""


def command_line(arguments: Sequence[str], module: bool, python: str = sys.executable) -> list[str]:
    """The command line to start: scripts and `-m module` are prefixed with this Python, anything else runs as it is.
    With another `python`, its environment has the program.

    Raises CommandError for a script or program that does not exist.
    """
    first = arguments[0]
    if module:
        return [python, "-m", *arguments]
    path = Path(first)
    if first.endswith((".py", ".pyc", ".pyz")) or (path.is_dir() and (path / "__main__.py").exists()):
        if not path.exists():
            raise CommandError(f"no such script: {first}")
        return [python, *arguments]
    own = shutil.which(first, path=str(Path(python).parent))  # torchrun, though the environment is not activated
    found = own if own is not None and python != sys.executable else shutil.which(first) or own
    if found is None:
        if path.is_file():
            raise CommandError(f"cannot start {first}: it is not executable; for a Python script, use python {first}")
        raise CommandError(f"cannot start {first}: no such script or program")
    return [found, *arguments[1:]]


def child_environment(control: Path) -> dict[str, str]:
    """This process's environment, with the agent's sitecustomize first in PYTHONPATH."""
    inject = str(Path(__file__).resolve().parents[1] / "inject")
    path = os.environ.get("PYTHONPATH")
    return {
        "KINETO_LOG_LEVEL": "99",  # otherwise the profiler prints lines into the script's output
        **os.environ,
        "PYTHONPATH": inject + os.pathsep + path if path else inject,
        "TRACEOPT_CONTROL": str(control),
    }


def run_command(
    command: Sequence[str],
    environment: dict[str, str],
    poll: Callable[[], None],
    handled: Mapping[int, Callable[[], None]] | None = None,
) -> int:
    """Runs the command, calling `poll` in the meantime; returns its exit code, or minus the signal that killed it.

    A signal that is `handled` here is not passed on, and the command ignores it until it handles it itself.

    A signal is passed on, unless it was sent to the whole process group, as a terminal does with Ctrl-C, and so has
    reached the command already. How to react is the command's decision. Raises CommandError.
    """
    handled = handled or {}
    restored = {number: signal.signal(number, signal.SIG_IGN) for number in handled}
    try:
        child = subprocess.Popen(command, env=environment)  # noqa: S603 - the user's own command
        group = GroupMember()
        arrived: deque[int] = deque()  # a handler only notes its signal, because another one may interrupt it

        def note(number: int, _: FrameType | None) -> None:
            arrived.append(number)

        def react(number: int) -> None:
            if number in handled:
                handled[number]()
            elif not group.received(number) and child.poll() is None:
                child.send_signal(number)

        for name in FORWARDED:
            number = getattr(signal, name, None)
            if number is not None and (number in handled or not _is_ignored(number)):
                before = signal.signal(number, note)  # only now, because a child inherits what is ignored
                restored.setdefault(number, before)
        try:
            while True:
                try:
                    return child.wait(POLL_S)
                except subprocess.TimeoutExpired:
                    poll()
                while arrived:
                    react(arrived.popleft())
        finally:
            group.leave()
    except OSError as error:
        raise CommandError(f"cannot start {command[0]}: {error.strerror}") from error
    finally:
        for number, handler in restored.items():
            signal.signal(number, handler)


def end_alike(code: int) -> NoReturn:
    """Ends this process the way the command ended: with its exit code, or by the same signal."""
    sys.stdout.flush()
    sys.stderr.flush()
    if code < 0:
        number = -code
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        _forbid_core_dump()
        os.kill(os.getpid(), number)
    raise SystemExit(code if code >= 0 else 128 - code)


def _is_ignored(number: int) -> bool:
    """As SIGINT in a background job of a shell, or SIGHUP under nohup: the command ignores it too."""
    return signal.getsignal(number) == signal.SIG_IGN


def _forbid_core_dump() -> None:
    """The command has dumped core if it was meant to; a second dump, from this process, would only hide it."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    except (ImportError, OSError, ValueError):
        return
