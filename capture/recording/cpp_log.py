"""Silences what torch's C++ side would print because of a recording.

Kineto prints a line when a profiler starts and stops. With profile_memory, torch warns about every block that is older
than the recording ("Memory block of unknown size"). Both levels are read from the environment only once, so this sets
the variables behind them during a recording, and gives a profiler of the script its own levels back.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_ERROR = 2
_NOTHING = 99
_KINETO_VARIABLE = "KINETO_LOG_LEVEL"
_KINETO = ("libtorch_cpu.so", "_ZN9libkineto6Logger14severityLevel_E", _NOTHING)
_TORCH = ("libc10.so", "FLAGS_caffe2_log_level", _ERROR)


class CppLog:
    """A level has no effect if the library does not have its variable."""

    def __init__(self, torch: Any, *, profile_memory: bool) -> None:
        folder = os.path.join(os.path.dirname(torch.__file__), "lib")
        self._levels = [_Level(folder, *_KINETO), *([_Level(folder, *_TORCH)] if profile_memory else [])]

    def silence(self) -> None:
        for level in self._levels:
            level.silence()

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Around the start of a profiler. The first one of a process makes Kineto read its level."""
        scripts = os.environ.get(_KINETO_VARIABLE)
        if scripts is None or scripts == str(_NOTHING):
            yield
            return
        os.environ[_KINETO_VARIABLE] = str(_NOTHING)
        try:
            yield
        finally:
            os.environ[_KINETO_VARIABLE] = scripts
            if scripts.isdigit():
                self._levels[0].before = int(scripts)

    def restore(self) -> None:
        for level in self._levels:
            level.restore()


class _Level:
    """`before` is the level to restore, None while it is not changed."""

    def __init__(self, folder: str, library: str, name: str, silent: int) -> None:
        self._silent = silent
        self.before: int | None = None
        try:
            self._level: ctypes.c_int | None = ctypes.c_int.in_dll(ctypes.CDLL(os.path.join(folder, library)), name)
        except (OSError, ValueError):
            self._level = None

    def silence(self) -> None:
        if self._level is not None and self.before is None:
            self.before = self._level.value
            self._level.value = max(self._silent, self.before)

    def restore(self) -> None:
        if self._level is not None and self.before is not None:
            self._level.value = self.before
            self.before = None
