"""Starts the scripts of `traceopt try` and ends them, with every process that they have started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from traceopt.capture.machine import available_memory_bytes

GRACE_S = 5.0  # between asking a script to end and killing it
POLL_S = 0.1
LOOK_S = 0.01  # between two looks whether the script has ended or stopped itself
MARK = "TRACEOPT_CONTROL"  # in the environment of every process of a run
LEAST_FREE = 1.25  # of the memory of a script, for another one beside it


class EndedError(Exception):
    """The script was ended; `why` says by what."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Script:
    """A command in a session of its own; a context manager that leaves no process of it, whatever happens.

    It may stop itself (capture/recording/timed_steps.py). It trains only inside of `advance`, and `time_limit_s` is
    the time that it may take there. Raises OSError if the command cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        output: IO[bytes],
        time_limit_s: float | None = None,
    ) -> None:
        self._mark = environment.get(MARK, "")
        self._time_limit_s = time_limit_s
        self._took_s = 0.0
        self._child = subprocess.Popen(  # noqa: S603 - the user's own command
            command,
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def advance(self, poll: Callable[[], str | None]) -> int | None:
        """Lets the script go on until it stops itself (None) or ends (its exit code, or minus the signal).

        `poll` is called at short intervals; once it returns a reason, EndedError is raised.
        """
        began = time.monotonic()
        self._signal(signal.SIGCONT)
        polled = began
        try:
            while True:
                if (code := self._child.poll()) is not None or self._has_stopped():
                    return code
                now = time.monotonic()
                if now - polled >= POLL_S:
                    polled = now
                    why = poll() or self._out_of_time(now - began)
                    if why is not None:
                        raise EndedError(why)
                time.sleep(LOOK_S)
        finally:
            self._took_s += time.monotonic() - began

    @property
    def leaves_room(self) -> bool:
        """Whether the machine has memory for another script like this one; False if the system does not tell."""
        free, used = available_memory_bytes(), _resident_bytes(self._child.pid)
        return free is not None and used is not None and free >= LEAST_FREE * used

    def __enter__(self) -> Script:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """First a request, as torchrun and data loaders need to end their own processes, then by force."""
        for number, wait_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
            if self._child.poll() is not None:
                break
            self._signal(number)
            self._signal(signal.SIGCONT)  # what is stopped gets no other signal
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(wait_s)
        self._signal(signal.SIGKILL)  # those that the script has left in its session
        kill_marked(self._mark)

    def _signal(self, number: int) -> None:
        """To all processes of the session that have not left its group."""
        with contextlib.suppress(OSError):
            os.killpg(self._child.pid, number)

    def _has_stopped(self) -> bool:
        if not hasattr(os, "waitid"):
            return False
        try:
            return os.waitid(os.P_PID, self._child.pid, os.WSTOPPED | os.WNOHANG) is not None
        except ChildProcessError:
            return False

    def _out_of_time(self, now_s: float) -> str | None:
        if self._time_limit_s is None or self._took_s + now_s <= self._time_limit_s:
            return None
        return f"it took longer than {self._time_limit_s:g} s"


def _resident_bytes(session: int) -> int | None:
    """The resident memory of all processes of a session; pages that they share count for each."""
    pages = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # the process has ended
            after_name = path.read_text(errors="replace").rpartition(")")[2].split()
            if int(after_name[3]) == session:
                pages += int(after_name[21])
    return pages * os.sysconf("SC_PAGE_SIZE") if pages else None


def kill_marked(mark: str) -> None:
    """Kills what is left of runs: the processes whose environment names this control folder, or one in it.

    They may have left the session (torchrun's workers) or lost their parent. Only Linux tells.
    """
    wanted = f"{MARK}={mark}".encode()
    below = wanted + os.fsencode(os.sep)
    for _ in range(50 if mark else 0):  # a process may start another before it is killed
        found = [
            number
            for number in _processes()
            if any(entry == wanted or entry.startswith(below) for entry in _environment_of(number))
        ]
        if not found:
            return
        for number in found:
            with contextlib.suppress(OSError):
                os.kill(number, signal.SIGKILL)
        time.sleep(POLL_S)


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
