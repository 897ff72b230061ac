"""Python events: the source lines that calls were made from, and one name for each method of built-in objects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from traceopt.analyzer.tables.schema import PythonTable

_OF_OBJECT = " object at 0x"
_ADDRESS = re.compile(r" object at 0x[0-9a-fA-F]+(?=>)")


class _CallLines(msgspec.Struct):
    """For `count` Python events in order of time: `rows` are the events that user code called, `lines` their caller
    lines.
    """

    count: int
    rows: list[int]
    lines: list[int]


def with_call_lines(python: PythonTable, header: Mapping[str, Any]) -> PythonTable:
    """The table with the lines that `traceopt run` recorded in the header, or unchanged if the two do not match."""
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


def without_addresses(names: list[str], python: PythonTable) -> PythonTable:
    """The table with one name for "<built-in method append of list object at 0x7f12>" and the same of other lists. The
    addresses would keep calls of one method apart, and they differ from run to run. Changes `names`, which stay
    distinct: a name that no event has any more keeps its address.
    """
    of_objects = [code for code, name in enumerate(names) if _OF_OBJECT in name]
    if not of_objects:
        return python
    known = {name: code for code, name in enumerate(names)}
    code_of = np.arange(len(names), dtype=python.name.dtype)
    for code in of_objects:
        name = _ADDRESS.sub(" object", names[code])
        code_of[code] = known.setdefault(name, code)
        if code_of[code] == code:
            names[code] = name
    return replace(python, name=code_of[python.name])
