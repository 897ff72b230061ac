"""Memory snapshots of the CUDA allocator: one of the recorded steps if the user asked for it, and one of an allocation
that failed, which is kept if the run dies of it.

torch has two functions for that, `_record_memory_history` and `_snapshot` in torch.cuda.memory, and calls an observer
before it raises OutOfMemoryError. Not yet run on a GPU: every call may fail, and then only a note says so.
"""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

MOST_ENTRIES = 200_000  # of the history; about 50 MB of snapshot
MOST_DUMPS = 5  # of failed allocations: a program may catch many
MOST_FRAMES = 100
SUFFIX = ".memory.pickle"


class MemorySnapshots:
    """`name` gives the file's name without suffix, `step` the number of completed steps. `note` takes what fails, and
    `tell` is called when a file was written.
    """

    def __init__(
        self,
        torch: Any,
        folder: Path,
        *,
        requested: bool,
        name: Callable[[], str],
        step: Callable[[], int],
        note: Callable[[str], None],
        tell: Callable[[], None],
    ) -> None:
        self._torch, self._folder, self._requested = torch, folder, requested
        self._name, self._step, self._note, self._tell = name, step, note, tell
        self._pid = os.getpid()
        self._uses_cuda = self._started = self._saved = False
        self._dumps = 0
        self._failed_at = -1  # the step of the last failed allocation
        self.files: list[Path] = []

    def watch(self) -> None:
        """Starts as soon as the script uses CUDA, and never makes it initialize CUDA."""
        call_later = getattr(self._torch.cuda, "_lazy_call", None)
        if call_later is not None:
            call_later(self._cuda_started)

    def _cuda_started(self) -> None:
        self._uses_cuda = True
        try:
            self._torch._C._cuda_attach_out_of_memory_observer(self.out_of_memory)
            if self._requested:
                self._torch.cuda.memory._record_memory_history(max_entries=MOST_ENTRIES, stacks="python")
            self._started = True
        except Exception as error:
            self._note(f"memory snapshot: {type(error).__name__}: {error}")

    def out_of_memory(self, device: int, requested: int, total: int, free: int) -> None:
        """The observer: torch calls it with sizes in bytes, on the thread that asked for memory."""
        if os.getpid() != self._pid or self._dumps == MOST_DUMPS:
            return
        self._dumps += 1
        self._failed_at = self._step()
        failed = {
            "device": device,
            "requested": requested,
            "device_total": total,
            "device_free": free,
            "frames": _frames(),
        }
        self._write(f"{self._name()}.oom{SUFFIX}", {"traceopt": {"out_of_memory": failed}})

    def recorded(self) -> None:
        """All cycles are recorded: the history holds their steps."""
        if self._requested and self._started and not self._saved:
            self._saved = True
            self._write(f"{self._name()}{SUFFIX}", {})

    def finish(self) -> None:
        """The process ends. A failed allocation that the program survived leaves no file."""
        if os.getpid() != self._pid:
            return
        self.recorded()
        if self._requested and self._step() and not self._uses_cuda:
            self._note("no memory snapshot was recorded: the run does not use CUDA")
        if 0 <= self._failed_at < self._step():
            for file in [one for one in self.files if one.name.endswith(f".oom{SUFFIX}")]:
                file.unlink(missing_ok=True)
                self.files.remove(file)

    def forget(self) -> None:
        """Called in a forked child: the files are the parent's, and CUDA starts anew."""
        self._pid = os.getpid()
        self._started = self._saved = False
        self._dumps, self._failed_at = 0, -1
        self.files = []

    def _write(self, name: str, more: dict[str, Any]) -> None:
        path = self._folder / name
        temporary = path.with_name(f".{name}.tmp")
        try:
            snapshot = self._torch.cuda.memory._snapshot()
            with temporary.open("wb") as file:
                pickle.dump({**snapshot, **more}, file, protocol=4)
            os.replace(temporary, path)
        except Exception as error:
            self._note(f"memory snapshot: {type(error).__name__}: {error}")
            temporary.unlink(missing_ok=True)
            return
        if path not in self.files:
            self.files.append(path)
        self._tell()


def _frames() -> list[dict[str, Any]]:
    """The Python stack of the caller's caller, innermost first, as torch writes it."""
    return [
        {"filename": frame.f_code.co_filename, "line": line, "name": frame.f_code.co_name}
        for _, (frame, line) in zip(range(MOST_FRAMES), traceback.walk_stack(sys._getframe(2)), strict=False)
    ]
