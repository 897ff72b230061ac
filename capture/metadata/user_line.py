"""The lines of the user's code that calls came from."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Container, Iterator
from types import CodeType, FrameType
from typing import Any

from .constructions import name_in_trace

UserLine = tuple[str, int, str]  # file as the profiler names it, line, function

_MOST_FRAMES = 100
_MOST_PLACES = 100
_MOST_OF_DECORATORS = 2  # frames between a function of the user and its call
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_LIBRARIES = tuple(
    {
        os.path.join(os.path.realpath(folder) if resolved else folder, "")
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
        if (folder := sysconfig.get_path(name))
        for resolved in (False, True)
    }
    | {os.path.join(_OWN, "")}
)
_GENERATED = re.compile(r"[/\\]c[a-z2-7]{51}\.py$")  # by Inductor, named after a hash
_INSTALLED = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)


class Places:
    """How often something was done on each line, and for how long."""

    def __init__(self) -> None:
        self._rows: dict[UserLine, list[float]] = {}  # count and seconds

    def add(self, place: UserLine | None, seconds: float) -> None:
        if place is not None and (place in self._rows or len(self._rows) < _MOST_PLACES):
            row = self._rows.setdefault(place, [0, 0.0])
            row[0] += 1
            row[1] += seconds

    def document(self) -> list[dict[str, Any]]:
        """The lines, longest time first."""
        rows = [
            {"file": file, "line": line, "function": function, "count": int(count), "us": round(seconds * 1e6, 1)}
            for (file, line, function), (count, seconds) in self._rows.items()
        ]
        return sorted(rows, key=lambda row: -row["us"])


def is_user_code(file: str) -> bool:
    """Whether a source file is outside of Python's library, installed packages and traceopt, and was not generated."""
    library = file.startswith(("<", *_LIBRARIES)) or any(part in file for part in _INSTALLED)
    return not library and _GENERATED.search(file) is None


def is_own_code(file: str) -> bool:
    """Whether a source file is part of the agent; warnings see another end of the name of some."""
    return file.startswith(os.path.join(_OWN, ""))


def user_line() -> UserLine | None:
    """The innermost line outside of Python's library, installed packages and traceopt; None if there is none."""
    return next((_line(frame) for frame in _frames() if is_user_code(frame.f_code.co_filename)), None)


def user_functions() -> set[CodeType]:
    """The functions of the user's code that are running."""
    return {frame.f_code for frame in _frames() if is_user_code(frame.f_code.co_filename)}


def line_of_call(loop: Container[CodeType]) -> UserLine | None:
    """The line of one of the functions `loop` that calls the functions of the user which are running inside it. It is
    the innermost line of the user if none of `loop` is running, or if a library calls the user's function.
    """
    innermost, of_library = None, 0
    for frame in _frames():
        if not is_user_code(frame.f_code.co_filename):
            of_library += 1
            continue
        if innermost is None:
            innermost = _line(frame)
        elif of_library > _MOST_OF_DECORATORS:
            break
        if frame.f_code in loop:
            return _line(frame)
        of_library = 0
    return innermost


def _frames() -> Iterator[FrameType]:
    """The frames of this thread from the innermost out."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def _line(frame: FrameType) -> UserLine:
    return name_in_trace(frame.f_code.co_filename), frame.f_lineno, frame.f_code.co_name
