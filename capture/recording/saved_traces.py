"""The traces that a process has written: one for each cycle that was recorded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..status import TraceNote
from .trace_file import SavedTrace


@dataclass
class SavedCycle:
    """`number`: of the cycle in the settings. `window`: its row in the ledger."""

    number: int
    file: SavedTrace
    head: dict[str, Any]
    window: dict[str, Any]
    note: TraceNote


class SavedTraces:
    def __init__(self) -> None:
        self._cycles: list[SavedCycle] = []

    def __bool__(self) -> bool:
        return bool(self._cycles)

    @property
    def files(self) -> list[Path]:
        return [saved.file.path for saved in self._cycles]

    @property
    def notes(self) -> list[TraceNote]:
        return [saved.note for saved in self._cycles]

    def add(self, added: SavedCycle) -> None:
        """Of the traces of one cycle, all but the last of which were cut short, the one with most steps is kept."""
        self._cycles.append(added)
        same = [saved for saved in self._cycles if saved.number == added.number]
        most = max(same, key=lambda saved: saved.note.steps)
        for saved in same:
            if saved is not most:
                saved.file.path.unlink(missing_ok=True)
                saved.window["until"] = saved.window["from"]  # the profiler was active, but no trace has these steps
                self._cycles.remove(saved)

    def complete(self, tail: dict[str, Any]) -> None:
        """Writes the heads anew, with what is known at the end of the run. Raises OSError."""
        for saved in self._cycles:
            saved.file.replace_head(saved.head | tail)

    def delete(self) -> None:
        for path in self.files:
            path.unlink(missing_ok=True)
        self._cycles.clear()
