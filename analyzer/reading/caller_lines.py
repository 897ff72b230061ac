"""Caller lines: the source lines that calls were made from, which `traceopt run` records for Python events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from traceopt.analyzer.tables.schema import PythonTable


class _CallLines(msgspec.Struct):
    """For `count` Python events in order of time: `rows` are the events that user code called, `lines` their caller
    lines.
    """

    count: int
    rows: list[int]
    lines: list[int]


def with_call_lines(python: PythonTable, header: Mapping[str, Any]) -> PythonTable:
    """Returns the table with `call_line` filled from the header, or unchanged if the two do not match."""
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
