"""Two runs of `traceopt try` share the machine in turns: one trains while the other is stopped.

What changes the speed of a machine for seconds or minutes (other users of its cores, heat, clocks) then reaches both.
A run stops itself, between two steps, and all of its processes with it, so that no worker loads batches meanwhile. The
program that started it lets it go on. No step contains the time in which it was stopped.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import Any

from ..metadata.environment import world_size

_PR_SET_PDEATHSIG = 1  # of prctl(2)


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
