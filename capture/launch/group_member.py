"""A process that does nothing but receive the signals of the process group: it tells them from signals to one process.

Python does not say who sent a signal, and to whom. Passing on one that the command has received too would, for example,
interrupt the checkpoint that it writes after Ctrl-C.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

DELIVERY_S = 0.5  # within which a signal has reached all members of the group


class GroupMember:
    """The process is `cat`, which waits for input that never comes, and ends with this one. Without it, on Windows,
    every signal counts as sent to the group.
    """

    def __init__(self) -> None:
        self._cat = shutil.which("cat") if os.name == "posix" else None
        self._process = self._start()

    def received(self, number: int) -> bool:
        """Whether the group has received the signal, and not only this process."""
        if self._process is None:
            return True
        try:
            reached = self._process.wait(DELIVERY_S) == -number
        except subprocess.TimeoutExpired:
            reached = _is_pending(self._process.pid, number)
            if not reached:
                return False
        self.leave()
        self._process = self._start()
        return reached

    def leave(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def _start(self) -> subprocess.Popen[bytes] | None:
        if self._cat is None:
            return None
        try:
            return subprocess.Popen([self._cat], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)  # noqa: S603
        except OSError:
            return None


def _is_pending(pid: int, number: int) -> bool:
    """Whether a process that has not run yet, or is stopped, will receive the signal. Only Linux tells."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return False
    pending = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(signals >> (number - 1) & 1 for signals in pending)
