"""The lines that calls were made from, as `traceopt run` writes them beside the Python events of a trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from traceopt.analyzer.tables.schema import PythonTable


class _CallLines(msgspec.Struct):
    """Of `count` Python events in order of time, the `rows` that the user's code called, from these `lines`."""

    count: int
    rows: list[int]
    lines: list[int]


def with_call_lines(python: PythonTable, header: Mapping[str, Any]) -> PythonTable:
    """The table with `call_line` filled from the header; as it was where they do not fit each other."""
    own = header.get("traceopt")
    try:
        found = msgspec.convert(own.get("call_lines") if isinstance(own, Mapping) else None, _CallLines)
        rows, lines = np.array(found.rows, np.int64), np.array(found.lines, np.int32)
    except (msgspec.ValidationError, OverflowError):
        return python
    fits = found.count == len(python) and len(rows) == len(lines)
    if not fits or not len(rows) or rows.min() < 0 or rows.max() >= len(python) or lines.min() < 1:
        return python
    call_line = np.full(len(python), -1, np.int32)
    call_line[rows] = lines
    return replace(python, call_line=call_line)
