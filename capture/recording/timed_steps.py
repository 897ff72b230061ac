"""A run without a profiler, as `traceopt try` needs it: its steps, losses and peak memory, written when it ends.

{"rank", "host", "pid", "step_us": [...], "settled", "drained_us", "core_wait": {...}, "losses": [[step, value], ...],
 "seeded_by_script", "switches_used": [...], "peak_device_bytes", "peak_host_bytes", "notes": [...]}

Times are microseconds. The host waits for the device at the end of step `settled` and at the end of the last step, so
that the steps in between contain all of their work: `drained_us` is what was left to do at the end.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from ..metadata.losses import Losses
from ..metadata.step_ledger import LedgerWriter
from ..settings import TimedRun
from ..status import Status
from .device_queue import drain
from .turns import Turns

SUFFIX = ".timed.json"


class TimedSteps:
    """Follows the steps of one process."""

    def __init__(self, torch: Any, settings: TimedRun) -> None:
        self._torch = torch
        self._settings = settings
        self.losses = Losses()
        self.seeded_by_script = False
        self.switches_used: list[str] = []
        self.at_settled: list[Callable[[], None]] = []  # called once, when the first steps are over
        self._drained_us = 0.0
        self._written = False
        self._turns = Turns(torch, settings.turn_s) if settings.turn_s is not None else None

    @property
    def switches(self) -> dict[str, Any]:
        return self._settings.switches

    def used(self, switch: str) -> None:
        if switch not in self.switches_used:
            self.switches_used.append(switch)

    def step_ended(self, step: int) -> bool:
        """Whether this was the last step. `step` is the number of completed steps."""
        if step == self._settings.settle:
            for action in self.at_settled:
                action()
            drain(self._torch)
        if step < self._settings.steps:
            if self._turns is not None and step >= self._settings.settle:
                self._turns.step_ended()
            return False
        self._drained_us = (drain(self._torch) or 0.0) * 1e6
        return True

    def write(self, control: str, status: Status, ledger: LedgerWriter) -> None:
        """Writes this process's file, once. A missing folder or a full disk must not disturb the script."""
        if self._written:
            return
        self._written = True
        written = ledger.document()
        document = {
            "rank": status.rank,
            "host": status.host,
            "pid": status.pid,
            "step_us": written["step_us"],
            "settled": self._settings.settle,
            "drained_us": round(self._drained_us, 1),
            "core_wait": self._without_stops(written["core_wait"]),
            "losses": self.losses.document(),
            "seeded_by_script": self.seeded_by_script,
            "switches_used": self.switches_used,
            "peak_device_bytes": self._peak_device_bytes(),
            "peak_host_bytes": _peak_host_bytes(),
            "notes": status.notes,
        }
        path = os.path.join(control, f"{status.host}.{status.pid}{SUFFIX}")
        try:
            with open(path + ".tmp", "w", encoding="utf-8") as file:
                json.dump(document, file)
            os.replace(path + ".tmp", path)
        except OSError:
            return

    def _without_stops(self, core_wait: dict[str, float] | None) -> dict[str, float] | None:
        """The wall time without the time in which this run was stopped."""
        if core_wait is None or self._turns is None:
            return core_wait
        return {**core_wait, "wall_us": round(core_wait["wall_us"] - self._turns.stopped_s * 1e6, 1)}

    def _peak_device_bytes(self) -> int | None:
        """Of the device that holds most; None without a GPU."""
        try:
            cuda = self._torch.cuda
            if not cuda.is_initialized():
                return None
            return max(int(cuda.max_memory_allocated(index)) for index in range(cuda.device_count()))
        except Exception:
            return None


def _peak_host_bytes() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else int(peak) * 1024
