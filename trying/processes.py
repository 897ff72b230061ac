"""Starts the script of one run and ends it, with every process that it has started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

GRACE_S = 5.0  # between asking a script to end and killing it
POLL_S = 0.1
MARK = "TRACEOPT_CONTROL"  # in the environment of every process of a run


class EndedError(Exception):
    """The script was ended; `why` says by what."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    output: IO[bytes],
    poll: Callable[[], str | None],
) -> int:
    """Runs the command in a session of its own; returns its exit code, or minus the signal that killed it.

    `poll` is called at short intervals; once it returns a reason, the script is ended. No process of the run is left,
    whatever happens. Raises EndedError, or OSError if the command cannot be started.
    """
    child = subprocess.Popen(  # noqa: S603 - the user's own command
        command,
        env=dict(environment),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        while True:
            try:
                return child.wait(POLL_S)
            except subprocess.TimeoutExpired:
                why = poll()
            if why is not None:
                raise EndedError(why)
    finally:
        _end(child)
        kill_marked(environment.get(MARK, ""))


def kill_marked(mark: str) -> None:
    """Kills what is left of a run: the processes with this control folder in their environment.

    They may have left the session (torchrun's workers) or lost their parent. Only Linux tells.
    """
    wanted = f"{MARK}={mark}".encode()
    for _ in range(50 if mark else 0):  # a process may start another before it is killed
        found = [number for number in _processes() if wanted in _environment_of(number)]
        if not found:
            return
        for number in found:
            with contextlib.suppress(OSError):
                os.kill(number, signal.SIGKILL)
        time.sleep(POLL_S)


def _end(child: subprocess.Popen[bytes]) -> None:
    """First a request, as torchrun and data loaders need to end their own processes, then by force."""
    for number, wait_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        if child.poll() is not None:
            break
        with contextlib.suppress(OSError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(wait_s)
    with contextlib.suppress(OSError):  # those that the script has left in its session
        os.killpg(child.pid, signal.SIGKILL)


def _processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
    except OSError:
        return []


def _environment_of(process: int) -> list[bytes]:
    try:
        return Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or belongs to someone else
        return []
