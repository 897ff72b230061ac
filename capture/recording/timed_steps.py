"""A run without a profiler, as `traceopt try` needs it: its steps, losses and peak memory, written when it ends.

{"rank", "host", "pid", "step_us": [...], "settled", "drained_us", "core_wait": {...}, "losses": [[step, value], ...],
 "seeded_by_script", "switches_used": [...], "peak_device_bytes", "peak_host_bytes", "notes": [...]}

Times are microseconds. The host waits for the device at the end of step `settled` and at the end of the last step, so
that the steps in between contain all of their work: `drained_us` is what was left to do at the end.

Two such runs share the machine in turns: one trains while the other is stopped. What changes the speed of a machine for
seconds or minutes (other users of its cores, heat, clocks) then reaches both. A run stops itself, between two steps,
and all of its processes with it, so that no worker loads batches meanwhile. The program that started it lets it go on.
No step contains the time in which it was stopped.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..metadata.environment import world_size
from ..metadata.losses import Losses
from ..metadata.step_ledger import LedgerWriter
from ..settings import TimedRun
from ..status import Status, write_json
from .device_queue import drain

SUFFIX = ".timed.json"
_PR_SET_PDEATHSIG = 1  # of prctl(2)


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
        """Writes this process's file, once."""
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
        write_json(os.path.join(control, f"{status.host}.{status.pid}{SUFFIX}"), document)

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


class Turns:
    """The turns of this process, of `turn_s` seconds each. The first one ends with the first call of `step_ended`."""

    def __init__(self, torch: Any, turn_s: float) -> None:
        self._torch = torch
        self._turn_s = turn_s
        self._began: float | None = None
        self._waits_for = os.getppid()  # the program that lets it go on
        self._possible: bool | None = None
        self.stopped_s = 0.0

    def step_ended(self) -> None:
        """Stops this run until its next turn, if its turn is over."""
        now = time.perf_counter()
        if self._began is not None and now - self._began < self._turn_s:
            return
        if self._possible is None:
            self._possible = self._alone_on_the_host() and _continued_if_parent_ends()
        if self._possible and os.getppid() == self._waits_for:
            os.killpg(0, signal.SIGSTOP)
            if os.getppid() != self._waits_for:  # that program was killed: nobody lets the workers go on
                os.killpg(0, signal.SIGCONT)
        self._began = time.perf_counter()
        self.stopped_s += self._began - now

    def _alone_on_the_host(self) -> bool:
        """Whether one process trains, on the CPU, and leads the group of all its processes.

        Ranks wait for each other; a device goes on with the work that it was given, and its memory is scarce.
        """
        if not hasattr(signal, "SIGSTOP") or os.getpgrp() != os.getpid() or (world_size(self._torch) or 1) > 1:
            return False
        devices = [getattr(self._torch, name, None) for name in ("cuda", "xpu")]
        return not any(device is not None and device.is_initialized() for device in devices)


def _continued_if_parent_ends() -> bool:
    """Asks the system to continue this process if its parent is killed. Only Linux can."""
    with suppress(Exception):
        import ctypes

        return bool(ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGCONT)) == 0)
    return False
