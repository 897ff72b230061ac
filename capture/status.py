"""What a recorded process reports to its launcher: one small file per process, replaced at every change of phase.

The agent's markers are in the same folder. From both, the launcher can say why nothing was recorded.
"""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

WAITING, WARMING_UP, RECORDING, SAVING, DONE = "waiting", "warming up", "recording", "saving", "done"
SUFFIX = ".status.json"


@dataclass
class TraceNote:
    """A trace that was written: its file in the log folder, its cycle, its complete steps and those it should have."""

    file: str
    cycle: str
    steps: int
    planned_steps: int
    closed_early: str | None


@dataclass
class Status:
    """`step` is the number of completed steps. `saving_s` is how long the script waited for traces to be processed and
    written.

    `looped_step`: what a run without steps did again and again, as --step-on names it.
    `notes` go into the trace, `troubles` are also shown to the user. `ended`: the process ended normally.
    """

    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    rank: int | None = None
    step: int = 0
    step_rule: str | None = None
    phase: str = WAITING
    cycle: str | None = None
    first_step: int = 0
    last_step: int = 0
    traces: list[TraceNote] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    ended: bool = False
    own_traces: list[str] = field(default_factory=list)
    memory_snapshots: list[str] = field(default_factory=list)
    own_profiler: bool = False
    fetches: int = 0
    backwards: int = 0
    updates: int = 0
    looped_step: str | None = None
    saving_s: float = 0.0

    def note(self, text: str) -> None:
        if text not in self.notes and len(self.notes) < 50:
            self.notes.append(text)

    def trouble(self, text: str) -> None:
        self.note(text)
        if text not in self.troubles and len(self.troubles) < 50:
            self.troubles.append(text)

    def write(self, control: str) -> None:
        """Replaces this process's file."""
        write_json(os.path.join(control, f"{self.host}.{self.pid}{SUFFIX}"), asdict(self))


def write_json(path: str, document: Any) -> None:
    """Replaces a file. A missing folder, a full disk or an open() that the script has replaced must not disturb the
    script.
    """
    with suppress(Exception):
        with open(path + ".tmp", "w", encoding="utf-8") as file:
            json.dump(document, file)
        os.replace(path + ".tmp", path)


def read_statuses(control: Path) -> list[Status]:
    """The statuses of all processes that wrote one, ordered by rank."""
    found = []
    for path in control.glob(f"*{SUFFIX}"):
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            known = {f.name: values[f.name] for f in fields(Status) if f.name in values}
            known["traces"] = [TraceNote(**trace) for trace in known.get("traces", [])]
            found.append(Status(**known))
        except (OSError, ValueError, TypeError):  # half written by a process that was killed
            continue
    return sorted(found, key=lambda s: (s.rank is None, s.rank or 0, s.host, s.pid))
