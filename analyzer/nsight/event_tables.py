"""Collects columns into the tables of a trace: types that fit, order by time, times from the first event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.tables.schema import I8, Mask, Table

_FARTHEST_NS = 86_400 * 10**9  # a time or a duration beyond a day is damage, as in traces of torch.profiler


class EventTables:
    """`lost` counts events that are left out because of their times."""

    def __init__(self) -> None:
        self.lost = 0
        self._tables: dict[str, tuple[type[Table], dict[str, Any]]] = {}

    def are_valid(self, start: I8, end: I8) -> Mask:
        """Which times no damaged file would give; counts the others."""
        valid = (start >= 0) & (start < 2**62) & (end >= start) & (end < 2**62) & (end - start < _FARTHEST_NS)
        self.lost += int(len(valid) - valid.sum())
        return np.asarray(valid)

    def put(self, attribute: str, table: type[Table], parts: Sequence[dict[str, Any]]) -> None:
        """Keeps the rows of several parts as columns; a column that a part lacks is -1, a number fills its column."""
        columns: dict[str, Any] = {}
        for name, dtype in table.SCHEMA.items():
            base, _, width = dtype.partition("x")
            count = sum(len(part["start"]) for part in parts)
            shape = (count, int(width)) if width else (count,)
            if base != "u1" and not any(
                isinstance(part.get(name, -1), np.ndarray) or part.get(name, -1) != -1 for part in parts
            ):
                columns[name] = np.broadcast_to(np.array(-1, base), shape)  # takes no memory
                continue
            columns[name] = np.empty(shape, base)
            row = 0
            for part in parts:
                end = row + len(part["start"])
                columns[name][row:end] = _fitting(part.get(name, -1), base)
                row = end
            for part in parts:
                if name != "start":
                    part.pop(name, None)
        self._tables[attribute] = (table, columns)

    def finish(self) -> tuple[dict[str, Any], int]:
        """The tables, sorted by time and counted from the first event, and the time of that event."""
        starts = [columns["start"] for _, columns in self._tables.values() if len(columns["start"])]
        if not starts:
            return {}, 0
        middle = int(np.median(np.concatenate([start[:: max(1, len(start) // 10_000)] for start in starts])))
        origin = min(int(near.min()) for start in starts if len(near := start[np.abs(start - middle) < _FARTHEST_NS]))
        finished: dict[str, Any] = {}
        for attribute, (table, columns) in self._tables.items():
            start = columns["start"]
            near = np.abs(start - middle) < _FARTHEST_NS
            self.lost += int(len(near) - near.sum())
            order = np.lexsort((-columns["duration"], start)).astype(np.int32)  # of two that begin together: the outer
            order = order[near[order]]
            for name, values in columns.items():
                if values.strides[0]:
                    columns[name] = values[order]
                else:
                    columns[name] = values[: len(order)]
            columns["start"] -= origin
            finished[attribute] = table(**columns)
        return finished, origin


def _fitting(values: npt.NDArray[Any] | int, base: str) -> npt.NDArray[Any] | int:
    """Numbers that fit this integer type; -1 for others."""
    if isinstance(values, int) or not len(values) or values.dtype == base:
        return values
    limits = np.iinfo(base)
    if values.min() >= limits.min and values.max() <= limits.max:
        return values
    return np.where((values >= limits.min) & (values <= limits.max), values, -1)
