"""Silences warnings of torch's C++ side while memory is recorded.

With profile_memory, torch warns about every block that is older than the recording ("Memory block of unknown size").
The log level is read from the environment only once, at import, so this sets the variable behind it during a recording.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

_ERROR = 2


class CppLog:
    """Has no effect if the library does not have this variable."""

    def __init__(self, torch: Any) -> None:
        library = os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so")
        try:
            self._level: ctypes.c_int | None = ctypes.c_int.in_dll(ctypes.CDLL(library), "FLAGS_caffe2_log_level")
        except (OSError, ValueError):
            self._level = None
        self._before: int | None = None

    def silence(self) -> None:
        if self._level is not None and self._before is None:
            self._before = self._level.value
            self._level.value = max(_ERROR, self._before)

    def restore(self) -> None:
        if self._level is not None and self._before is not None:
            self._level.value = self._before
            self._before = None
