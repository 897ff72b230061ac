"""The times of all tables of a trace: read, and replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from msgspec.structs import replace

from traceopt.analyzer.tables.schema import I8, Spans, Table
from traceopt.analyzer.tables.trace import Trace


def all_times(trace: Trace) -> list[I8]:
    """When the events of each table that is not empty begin, ns."""
    return [getattr(table, _time_of(table)) for _, table in _tables(trace) if len(table)]


def with_times(trace: Trace, change: Callable[[I8], I8], scale: int = 1) -> Trace:
    """The trace with other times, in order of time; durations are divided by `scale`."""
    changed = {}
    for name, table in _tables(trace):
        time = change(getattr(table, _time_of(table)))
        columns = {_time_of(table): time}
        if isinstance(table, Spans) and scale != 1:
            columns["duration"] = table.duration // scale
        moved = replace(table, **columns)
        changed[name] = moved if (time[1:] >= time[:-1]).all() else moved.take(np.argsort(time, kind="stable"))
    return replace(trace, **changed)


def within(trace: Trace, first: int, last: int) -> Trace:
    """The trace without events that begin before or after."""
    tables = {name: (table, getattr(table, _time_of(table))) for name, table in _tables(trace)}
    return replace(trace, **{n: table.take((time >= first) & (time <= last)) for n, (table, time) in tables.items()})


def from_first_event(trace: Trace) -> Trace:
    """The trace with times that count from its first event."""
    origin = min((int(times.min()) for times in all_times(trace)), default=0)
    if not origin:
        return trace
    start_ns = trace.meta.start_ns
    meta = trace.meta if start_ns is None else replace(trace.meta, start_ns=start_ns + origin)
    return replace(with_times(trace, lambda times: times - origin), meta=meta)


def _tables(trace: Trace) -> Iterator[tuple[str, Table]]:
    for name in trace.__struct_fields__:
        if isinstance(table := getattr(trace, name), Table):
            yield name, table


def _time_of(table: Table) -> str:
    return "time" if "time" in table.SCHEMA else "start"
