"""Decides when a recording begins that waits for something: a slow phase, a time, or a request.

All processes of a run on a machine begin at the same step. The first one that has a reason writes the step into a file
of the control folder, and all of them read it.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from ..settings import AMONG_STEPS, SLOW_STEPS, Trigger
from . import requests

SETTLED_STEPS = 3  # the first steps of a run are slow
LEAST_STEPS = 20  # before a median is known
MEDIAN_STEPS = 128  # the latest ones
MEDIAN_EVERY = 16  # steps
RANKS_APART_STEPS = 4  # ranks are at most so many steps apart


class StepTrigger:
    """Told about every step without a profiler, and asked between two steps."""

    def __init__(self, trigger: Trigger, control: str) -> None:
        self._trigger = trigger
        self._control = control
        self._at_s = None if trigger.after_s is None else time.monotonic() + trigger.after_s
        self._limit_us = trigger.slow_us
        self._recent_us: deque[float] = deque(maxlen=MEDIAN_STEPS)
        self._are_slow: deque[bool] = deque(maxlen=AMONG_STEPS)
        self._steps = 0
        self.recordings = 0  # that have begun
        self._from_step: int | None = None

    def step_ended(self, us: float) -> None:
        self._steps += 1
        if self._trigger.watches_steps and self._steps > SETTLED_STEPS and not self.recordings:
            self._are_slow.append(self._limit_us is not None and us > self._limit_us)
            self._recent_us.append(us)
            factor = self._trigger.slow_factor
            if factor is not None and self._steps >= LEAST_STEPS and self._steps % MEDIAN_EVERY == 0:
                self._limit_us = factor * sorted(self._recent_us)[len(self._recent_us) // 2]

    def is_due(self, step: int, rank_count: Callable[[], int]) -> bool:
        """Whether the recording begins with this step."""
        path = os.path.join(self._control, f"from-step-{self.recordings}")
        if self._from_step is None:
            if self._has_reason() and not os.path.exists(path):
                self._announce(path, step + (RANKS_APART_STEPS if rank_count() > 1 else 0))
            self._from_step = int(text) if os.path.exists(path) and (text := requests.read(path)) else None
        return self._from_step is not None and step >= self._from_step

    def begun(self) -> None:
        """The recording has begun. Only a request begins another one."""
        self.recordings += 1
        self._from_step = self._at_s = None
        self._are_slow.clear()

    def _has_reason(self) -> bool:
        if sum(self._are_slow) >= SLOW_STEPS or (self._at_s is not None and time.monotonic() >= self._at_s):
            return True
        return self._trigger.on_request and requests.asked(self._control)

    def _announce(self, path: str, step: int) -> None:
        """The first process that comes decides."""
        own = f"{path}.{os.getpid()}"
        requests.write(own, str(step))
        with suppress(FileExistsError):
            os.link(own, path)
        os.unlink(own)
        requests.answered(self._control)
