"""Keeps torch's C++ side from writing between the script's lines while memory is recorded.

With profile_memory it warns of every block that is older than the recording ("Memory block of unknown size"). Its level
is read from the environment only once, at import; so the variable behind it is set for the length of a recording.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

_ERROR = 2


class CppLog:
    """Without effect where the library has no such variable."""

    def __init__(self, torch: Any) -> None:
        library = os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so")
        try:
            self._level: ctypes.c_int | None = ctypes.c_int.in_dll(ctypes.CDLL(library), "FLAGS_caffe2_log_level")
        except (OSError, ValueError):
            self._level = None
        self._before: int | None = None

    def hush(self) -> None:
        if self._level is not None and self._before is None:
            self._before = self._level.value
            self._level.value = max(_ERROR, self._before)

    def restore(self) -> None:
        if self._level is not None and self._before is not None:
            self._level.value = self._before
            self._before = None
