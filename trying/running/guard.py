"""Cleans up after a `traceopt try` that was killed: a process of its own, which outlives it.

Nothing in a process can handle SIGKILL or the kernel's out-of-memory killer. So the guard watches its parent. If the
parent is gone, it kills what is left of the runs and removes the copies of the source.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from traceopt.trying.running.processes import kill_marked
from traceopt.trying.source_copy import git

LOOK_S = 0.5  # between two looks at the parent; each takes less than 0.1 ms


class Guard:
    """Guards a folder with copies of the source until it is ended. `root` is the user's source.

    Where processes cannot be listed (anywhere but on Linux), it removes the copies only.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        with suppress(OSError):  # without a guard, only a SIGKILL leaves anything
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", __name__, str(os.getpid()), str(folder), str(root)],
                env={**os.environ, "PYTHONSAFEPATH": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C does not reach it
            )

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def main(parent: int, folder: Path, root: Path) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    kill_marked(str(folder))
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError, subprocess.SubprocessError):
        git(root, "worktree", "prune")


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
