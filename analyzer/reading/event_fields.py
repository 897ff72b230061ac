"""Selects the fields of events that each table keeps, as lists of decoded values: one list per column."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache
from itertools import islice
from operator import attrgetter
from typing import Any

from msgspec import Raw, Struct, field
from msgspec.structs import replace

from traceopt.analyzer.reading.event_types import NONE, number
from traceopt.analyzer.reading.finishing.launch_ids import of_operator
from traceopt.analyzer.tables.schema import GpuTable, MemoryTable, OpTable, RuntimeTable, SyncTable, Table
from traceopt.analyzer.vocabulary import event_categories as cat

# Tables of points in time; the other tables are named after their categories.
MEMORY, FLOWS, ARROWS, COUNTERS = "memory", "flows", "arrows", "counters"
_OF_GPU = re.compile(r"GPU (\d{1,3}) Counters")  # the process of readings of hardware counters
_MOST_GPUS = 1_024  # a larger process id is that of a process
_MOST_METRICS = 64  # of one reading


class Counted(Struct, gc=False):
    """One metric of a reading of hardware counters."""

    name: str
    device: int
    ts: Any
    value: float


@lru_cache(maxsize=1_024)
def _gpu_of(pid: object) -> int:
    """The number of the GPU whose counters a process has; -1: not such a process."""
    found = _OF_GPU.fullmatch(pid) if isinstance(pid, str) else None
    if found is not None:
        return int(found[1])
    return int(pid) if isinstance(pid, int | float) and 0 <= pid < _MOST_GPUS else -1


def is_reading(event: Any) -> bool:
    """Whether a counter event is a reading of hardware counters. PyTorch 2.15 gives it no category."""
    if event.cat:
        return bool(event.cat == cat.HARDWARE_COUNTERS)
    return isinstance(event.pid, str) and _gpu_of(event.pid) >= 0


def counted(readings: Iterable[Any]) -> list[Counted]:
    """The metrics of readings whose GPU is known; values that are no numbers are left out."""
    found = []
    for reading in readings:
        pid, args = reading.pid, reading.args
        device = _gpu_of(pid) if isinstance(pid, Hashable) else -1
        if device >= 0 and isinstance(args, dict):
            for metric, value in islice(args.items(), _MOST_METRICS):
                name = metric or reading.name
                if metric == "device":  # Kineto repeats the number of the GPU
                    continue
                if isinstance(value, int | float) and not isinstance(value, bool) and isinstance(name, str):
                    found.append(Counted(name, device, reading.ts, float(value)))
    return found


class Fields(Struct):
    """Columns grouped by value type. The first of `numbers` are the times, in us."""

    numbers: dict[str, list[Any]]
    texts: dict[str, list[Raw]] = field(default_factory=dict)
    triples: dict[str, list[Any]] = field(default_factory=dict)
    flags: dict[str, list[bool]] = field(default_factory=dict)


def _span(events: Sequence[Any]) -> dict[str, list[Any]]:
    return {"start": [e.ts for e in events], "duration": [e.dur for e in events]}


def _thread(events: Sequence[Any]) -> dict[str, list[Any]]:
    return {"pid": [e.pid for e in events], "tid": [e.tid for e in events]}


def _recorded(table: type[Table], events: Sequence[Any]) -> Fields:
    """The columns of a table that come from the `args` of events."""
    args = [event.args for event in events]

    def columns(*kinds: str) -> dict[str, list[Any]]:
        return {name: list(map(attrgetter(name), args)) for name in table.of_args(*kinds)}

    return Fields(columns("I8", "I4"), columns("Text"), columns("I4x3"))


def _linked(table: type[Table], events: Sequence[Any]) -> Fields:
    """The columns of a table of launches or of their work; see finishing/launch_ids.py for events without a
    correlation id.
    """
    fields = _recorded(table, events)
    ids = fields.numbers["correlation"]
    if NONE in ids:
        fields.numbers["correlation"] = [
            of_operator(number(e.args.external)) if one == NONE else one for one, e in zip(ids, events, strict=True)
        ]
    return fields


def _gpu(events: Sequence[Any]) -> Fields:
    fields = _linked(GpuTable, events)
    of_event = {"pid": [e.pid for e in events]}  # the device, if the file has no device argument
    return replace(fields, numbers=_span(events) | fields.numbers | of_event)


def _runtime(events: Sequence[Any]) -> Fields:
    fields = _linked(RuntimeTable, events)
    return replace(fields, numbers=_span(events) | fields.numbers | _thread(events))


def _op(events: Sequence[Any]) -> Fields:
    fields = _recorded(OpTable, events)
    index = {"event_index": [e.args.event_index for e in events]}
    return replace(fields, numbers=_span(events) | fields.numbers | index | _thread(events))


def _python(events: Sequence[Any]) -> Fields:
    return Fields(_span(events) | _thread(events))


def _overhead(events: Sequence[Any]) -> Fields:
    return Fields(_span(events))


def _sync(events: Sequence[Any]) -> Fields:
    fields = _linked(SyncTable, events)
    return replace(fields, numbers=_span(events) | fields.numbers)


def _memory(events: Sequence[Any]) -> Fields:
    fields = _recorded(MemoryTable, events)
    return replace(fields, numbers={"time": [e.ts for e in events]} | fields.numbers | _thread(events))


def _flows(events: Sequence[Any]) -> Fields:
    numbers = {"time": [e.ts for e in events], "id": [e.id for e in events]}
    return Fields(numbers | _thread(events), flags={"finish": [e.ph == "f" for e in events]})


def _arrows(events: Sequence[Any]) -> Fields:
    return Fields({"time": [e.ts for e in events], "id": [e.id for e in events]} | _thread(events))


def _counters(events: Sequence[Any]) -> Fields:
    return Fields({"time": [e.ts for e in events], "device": [e.device for e in events]})


FIELDS: dict[str, Callable[[Sequence[Any]], Fields]] = {
    cat.GPU: _gpu,
    cat.RUNTIME: _runtime,
    cat.OP: _op,
    cat.ANNOTATION: _op,
    cat.PYTHON: _python,
    cat.SYNC: _sync,
    cat.OVERHEAD: _overhead,
    MEMORY: _memory,
    FLOWS: _flows,
    ARROWS: _arrows,
    COUNTERS: _counters,
}
