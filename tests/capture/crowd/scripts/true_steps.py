"""Counts the steps of a training by its own word: `true_step()` is called once in every step, after the update.

Each call is a range `true step` in a trace, and a byte in the file PID.steps of the folder that CROWD_STEPS names.
"""

from __future__ import annotations

import gc
import os
import random
import sys
from types import FrameType
from typing import Any

gc.disable()  # a third of the time that the import takes
import numpy as np  # noqa: E402
import torch._dynamo  # noqa: E402  # the first optimizer imports it

gc.enable()

FOLDER = os.environ.get("CROWD_STEPS", "")
RANGE = "true step"
COUNTED_FROM = 20  # steps before it are left to settle
COUNTED = 20
AGENT = os.environ.get("CROWD_AGENT", "")  # the folder of traceopt's agent, if its calls are to be counted


def seed_everything(seed: int = 0) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def true_step() -> None:
    with torch.profiler.record_function(RANGE):
        if FOLDER:
            _steps.add()


class _Steps:
    """Of this process; a forked child counts anew."""

    def __init__(self) -> None:
        self._process = 0
        self._file = -1
        self._count = 0
        self._agent_calls = 0

    def add(self) -> None:
        if self._process != os.getpid():
            self._process, self._count = os.getpid(), 0
            self._file = os.open(f"{FOLDER}/{self._process}.steps", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(self._file, b".")
        self._count += 1
        if AGENT and self._count == COUNTED_FROM:
            sys.setprofile(self._called)
        if AGENT and self._count == COUNTED_FROM + COUNTED:
            sys.setprofile(None)
            with open(f"{FOLDER}/{self._process}.calls", "w") as file:
                file.write(f"{self._agent_calls / COUNTED}")

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        """The calls of the agent's functions, and the calls that they make."""
        if event == "call":
            caller = frame.f_back
            self._agent_calls += _is_agent(frame) or (caller is not None and _is_agent(caller))
        elif event == "c_call":
            self._agent_calls += _is_agent(frame)


def _is_agent(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(AGENT)


_steps = _Steps()
