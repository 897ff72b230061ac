"""Groups events by table, and selects the fields that each table keeps, as lists of decoded values for each column."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Raw, Struct
from msgspec.structs import replace

from traceopt.analyzer.reading.event_types import NONE, Event, Slice, number
from traceopt.analyzer.reading.finishing.launch_ids import of_operator
from traceopt.analyzer.tables.schema import (
    KERNEL,
    MEMCPY,
    MEMSET,
    AnnotationTable,
    ArrowTable,
    CounterTable,
    FlowTable,
    GpuTable,
    MemoryTable,
    OpTable,
    PythonTable,
    RuntimeTable,
    Spans,
    SyncTable,
    Table,
)
from traceopt.analyzer.vocabulary import event_categories as cat
from traceopt.analyzer.vocabulary.copy_labels import UNLABELED, copy_label

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
    texts: dict[str, list[Raw]] = {}
    triples: dict[str, list[Any]] = {}
    flags: dict[str, list[bool]] = {}


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


class TableKind(NamedTuple):
    """A table that events fill: its attribute of Trace, its columns, and the fields of events that go into them."""

    attribute: str
    columns: type[Any]
    fields: Callable[[Sequence[Any]], Fields]

    @property
    def time(self) -> str:
        """The column of the times that rows are sorted by."""
        return "time" if "time" in self.columns.SCHEMA else "start"


TABLES = {
    cat.GPU: TableKind("gpu", GpuTable, _gpu),
    cat.RUNTIME: TableKind("runtime", RuntimeTable, _runtime),
    cat.OP: TableKind("ops", OpTable, _op),
    cat.ANNOTATION: TableKind("annotations", AnnotationTable, _op),
    cat.PYTHON: TableKind("python", PythonTable, _python),
    cat.SYNC: TableKind("sync", SyncTable, _sync),
    cat.OVERHEAD: TableKind("overheads", Spans, _overhead),
    MEMORY: TableKind("memory", MemoryTable, _memory),
    FLOWS: TableKind("flows", FlowTable, _flows),
    ARROWS: TableKind("arrows", ArrowTable, _arrows),
    COUNTERS: TableKind("counters", CounterTable, _counters),
}


class TableEvents:
    """The events of one table, grouped by category."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self._categories: list[tuple[str, int]] = []

    def add(self, category: str, events: list[Any]) -> None:
        self.events = self.events + events if self.events else events
        self._categories.append((category, len(events)))

    def per_event(self, number_of: Callable[[str], int]) -> npt.NDArray[np.uint8]:
        """A number for each event, derived from its category."""
        numbers = np.array([number_of(category) for category, _ in self._categories], np.uint8)
        return np.repeat(numbers, [count for _, count in self._categories])


def by_type(events: Sequence[Event]) -> dict[type, list[Any]]:
    groups: defaultdict[type, list[Any]] = defaultdict(list)
    for event in events:
        groups[type(event)].append(event)
    return groups


def by_category(slices: Sequence[Slice]) -> dict[str, list[Slice]]:
    groups: defaultdict[str, list[Slice]] = defaultdict(list)
    for one in slices:
        groups[one.cat].append(one)
    return groups


def labels_of(events: Sequence[Any]) -> list[str]:
    """The names of GPU events; copies of PyTorch's newer CUPTI backend are named as by Kineto."""
    return [
        copy_label(e.name, a.copy_kind, a.source_kind, a.target_kind, a.memory_kind)
        if e.name in UNLABELED and (a := e.args)
        else e.name
        for e in events
    ]


def gpu_kind(category: str) -> int:
    return MEMCPY if category in cat.MEMCPY_CATEGORIES else MEMSET if category in cat.MEMSET_CATEGORIES else KERNEL
