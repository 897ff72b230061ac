"""Decoded events to tables: grouped by category, appended to growing columns, sorted and numbered at the end."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer import categories as cat
from traceopt.analyzer.columns import Codes, Columns, Floats, fit, floats, triples
from traceopt.analyzer.events import (
    NO_TEXT,
    Arrow,
    Complete,
    Event,
    Flow,
    FlowStart,
    Ignored,
    Instant,
    Meta,
    Point,
    Slice,
    number,
    triple,
)
from traceopt.analyzer.tables import (
    I4,
    KERNEL,
    MEMCPY,
    MEMSET,
    AnnotationTable,
    FlowTable,
    GpuTable,
    MemoryTable,
    OpTable,
    PythonTable,
    RuntimeTable,
    SyncTable,
    T,
)
from traceopt.analyzer.trace import Thread

_SKIPPED = (Arrow, Ignored)
_FARTHEST_US = 86_400e6  # a time or a duration beyond a day is damage: a trace holds seconds to minutes
_TEXT_THREADS = -(1 << 40)  # process and thread ids that are texts are numbered from here down
TEXT_COLUMNS = frozenset(
    {"dims", "types", "concrete", "stack", "collective", "collective_dtype", "process_group", "process_group_ranks"}
)
_NO_TEXTS = (b"", b"null", b'""')
_SEPARATOR = b"\0"  # hardly ever in JSON text


class Mark(Struct, frozen=True):
    """How far a builder was: rows by kind, and the sizes of its dictionaries."""

    rows: dict[str, int]
    names: int
    texts: int
    threads: int


class Content(Struct, frozen=True):
    """What a builder has read, as one process sends it to another."""

    columns: dict[str, dict[str, Any]]
    names: list[str]
    texts: list[bytes]
    threads: list[tuple[int, int]]
    counts: tuple[int, int, int, int]  # events, slices, lost events, events with an index
    index_range: tuple[float, float]
    categories: Counter[str]
    thread_names: dict[tuple[float | str, float | str], str]


def base_of(events: Sequence[Event]) -> float | None:
    """A whole microsecond amid the times of some events: the median, because the first time may be damaged."""
    times = sorted(time for event in events if math.isfinite(time := getattr(event, "ts", math.nan)))
    return math.floor((times[(len(times) - 1) // 2] + times[len(times) // 2]) / 2) if times else None


class TableBuilder:
    """Collects decoded events into columns."""

    def __init__(self) -> None:
        self.names: Codes[str] = Codes()
        self.texts: Codes[bytes] = Codes()
        self.texts.encode(_NO_TEXTS, len(_NO_TEXTS))
        self.event_count = 0
        self.slice_count = 0
        self.lost = 0
        self.categories: Counter[str] = Counter()
        self.start_ns: int | None = None  # of the first event, on the clock of the file
        self.base_us: float | None = None  # what times count from while the file is read
        self._thread_texts: Codes[str] = Codes()
        self._thread_meta: dict[tuple[float | str, float | str], str] = {}
        self._thread_codes: Codes[tuple[int, int]] = Codes()
        self._threads: list[tuple[int, int]] = []
        self._index_range = (np.inf, -np.inf)
        self._index_count = 0
        self._columns = {kind: Columns(table.SCHEMA) for kind, table in _TABLES.items()}

    def add(self, events: Sequence[Event]) -> None:
        """Appends one chunk's events."""
        self.event_count += len(events)
        if self.base_us is None:
            self.base_us = base_of(events)
        groups = _by_type(events)
        for kind, alike in groups.items():
            if issubclass(kind, Complete):
                self._add_category(kind.category, alike)
            elif kind is Slice:
                for category, slices in _by_category(alike).items():
                    self._add_category(category, slices)
        for kind, alike in groups.items():
            if issubclass(kind, (Instant, Point)):
                self._add_memory([e for e in alike if e.name == "[memory]"])
            elif issubclass(kind, Flow):
                self._add_flows(alike)
            elif issubclass(kind, FlowStart):
                self._add_flows([e for e in alike if e.cat in cat.FORWARD_BACKWARD_FLOWS])
            elif kind is Meta:
                named = [e for e in alike if e.name == "thread_name"]
                self._thread_meta |= {(e.pid or 0.0, e.tid or 0.0): _meta_name(e.args) for e in named}

    def _add_category(self, category: str, slices: list[Any]) -> None:
        self.slice_count += len(slices)
        self.categories[category] += len(slices)
        kind = cat.TABLE_OF_CATEGORY.get(category, cat.IGNORED)
        if category in cat.OP_CATEGORIES_WITH_ANNOTATIONS:
            annotations = [e for e in slices if cat.is_annotation(e.name)]
            if annotations:
                self._add_slices(cat.ANNOTATION, category, annotations)
                slices = [e for e in slices if not cat.is_annotation(e.name)]
        if kind != cat.IGNORED and slices:
            self._add_slices(kind, category, slices)

    def _add_slices(self, kind: str, category: str, events: list[Any]) -> None:
        numbers = {"start": [e.ts for e in events], "duration": [e.dur for e in events]}
        columns: dict[str, Any] = {"name": self.names.encode([e.name for e in events], len(events))}
        args = [] if kind == cat.PYTHON else [e.args for e in events]
        if kind == cat.GPU:
            numbers |= _gpu_numbers(args)
            columns["kind"] = _gpu_kind(category)
            columns["grid"] = _triples([a.grid for a in args])
            columns["block"] = _triples([a.block for a in args])
            columns["collective"] = self._texts([a.collective for a in args])
            columns["collective_dtype"] = self._texts([a.collective_dtype for a in args])
            columns["process_group"] = self._texts([a.process_group for a in args])
            columns["process_group_ranks"] = self._texts([a.process_group_ranks for a in args])
        elif kind == cat.RUNTIME:
            numbers["correlation"] = [a.correlation for a in args]
        elif kind == cat.OP or kind == cat.ANNOTATION:
            numbers["sequence"] = [a.sequence for a in args]
            numbers["forward_thread"] = [a.forward_thread for a in args]
            numbers["event_index"] = [a.event_index for a in args]
            columns["dims"] = self._texts([a.dims for a in args])
            columns["types"] = self._texts([a.types for a in args])
            columns["concrete"] = self._texts([a.concrete for a in args])
            columns["stack"] = self._texts([a.stack for a in args])
        elif kind == cat.PYTHON:
            columns["call_line"] = -1
        elif kind == cat.SYNC:
            numbers["correlation"] = [a.correlation for a in args]
            numbers["device"] = [a.device for a in args]
            numbers["stream"] = [a.stream for a in args]
            numbers["awaited_stream"] = [a.awaited_stream for a in args]
            numbers["event_record"] = [a.event_record for a in args]
        self._append(kind, events, numbers, columns)

    def _add_memory(self, events: list[Any]) -> None:
        args = [e.args for e in events]
        numbers = {
            "time": [e.ts for e in events],
            "bytes": [a.bytes for a in args],
            "address": [a.address for a in args],
            "allocated": [a.allocated for a in args],
            "reserved": [a.reserved for a in args],
            "device_type": [a.device_type for a in args],
            "device": [a.device for a in args],
        }
        self._append("memory", events, numbers, {})

    def _add_flows(self, events: list[Any]) -> None:
        numbers = {"time": [e.ts for e in events], "id": [e.id for e in events]}
        self._append("flows", events, numbers, {"finish": np.array([e.ph == "f" for e in events])})

    def _append(self, kind: str, events: list[Any], numbers: dict[str, list[Any]], columns: dict[str, Any]) -> None:
        """Adds the rows that have a time; the others are lost. The times, in us, come first among `numbers`."""
        if not events:
            return
        numbers["pid"] = [e.pid for e in events]
        numbers["tid"] = [e.tid for e in events]
        block = self._floats(numbers)
        block[0] -= self.base_us or 0.0  # epoch microseconds need 51 bits: this comes before the scale
        timed = np.abs(block[0]) < _FARTHEST_US
        if not timed.all():
            self.lost += int(len(timed) - timed.sum())
            block = block[:, timed]
            columns = {name: v if isinstance(v, int) else v[timed] for name, v in columns.items()}
        np.rint(block[0] * 1e3, out=block[0])
        rows = dict(zip(numbers, block, strict=True))
        if "duration" in rows:
            duration = rows["duration"]
            duration[~((duration > 0) & (duration < _FARTHEST_US))] = 0
            np.rint(duration * 1e3, out=duration)
        if "event_index" in rows:  # Python frames are numbered apart, after all operators
            self._count_indices(rows["event_index"])
        if kind == cat.GPU:  # GPU-only and 2021 files: the process row is the device
            np.copyto(rows["device"], rows["pid"], where=rows["device"] < 0)
        schema = _TABLES[kind].SCHEMA
        fit(block, tuple(schema.get(name, "i8") for name in rows))
        if "thread" in schema:
            columns["thread"] = self._thread(rows["pid"], rows["tid"])
        self._columns[kind].append(block.shape[1], columns | rows)

    def _floats(self, numbers: dict[str, list[Any]]) -> Floats:
        """The lists as rows; texts that are numbers count, anything else is -1."""
        fast = floats(list(numbers.values()))
        if fast is not None:
            return fast
        block = np.empty((len(numbers), len(next(iter(numbers.values())))))
        for row, (name, values) in zip(block, numbers.items(), strict=True):
            fast = floats([values])
            if fast is not None:
                row[:] = fast[0]
            else:
                row[:] = list(map(self._thread_number if name in ("pid", "tid") else number, values))
        return block

    def _thread_number(self, value: float | str | None) -> float:
        """A process or thread id as a number; texts that are no number are numbered by their order."""
        parsed = number(value)
        if parsed == -1.0 and isinstance(value, str):  # 2021 files and odd writers only
            return float(_TEXT_THREADS - int(self._thread_texts.encode((value,), 1)[0]))
        return parsed

    def _thread(self, pids: Floats, tids: Floats) -> npt.NDArray[np.int32]:
        """A code for each pair of a process and a thread. Rows of one thread mostly stand together in the file."""
        changes = (pids[1:] != pids[:-1]) | (tids[1:] != tids[:-1])
        runs = np.concatenate(([0], np.flatnonzero(changes) + 1)) if len(pids) else np.empty(0, np.intp)
        pairs = zip(map(int, pids[runs].tolist()), map(int, tids[runs].tolist()), strict=True)
        codes = self._thread_codes.encode(pairs, len(runs))
        return np.repeat(codes, np.diff(np.append(runs, len(pids))))

    def _texts(self, values: list[msgspec.Raw]) -> npt.NDArray[np.int32]:
        """Codes of raw JSON texts, -1 for "not in the event"."""
        if values.count(NO_TEXT) == len(values):
            return np.full(len(values), -1, np.int32)
        text, first = _SEPARATOR.join(values), bytes(values[0])
        alike = len(text) == len(first) * len(values) + len(values) - 1
        if alike and text == _SEPARATOR.join([first] * len(values)):  # as "" for all, where nothing was recorded
            codes = np.repeat(self.texts.encode((first,), 1), len(values))
        else:
            texts = text.split(_SEPARATOR)  # at half the cost of bytes(value) for each
            codes = self.texts.encode(texts if len(texts) == len(values) else map(bytes, values), len(values))
        codes[codes < len(_NO_TEXTS)] = -1
        return codes

    def _count_indices(self, indices: Floats) -> None:
        known = indices[indices >= 0]
        if len(known):
            low, high = self._index_range
            self._index_range = (min(low, float(known.min())), max(high, float(known.max())))
            self._index_count += len(known)

    def recorded_index_share(self) -> float | None:
        low, high = self._index_range
        return min(1.0, self._index_count / (high - low + 1)) if self._index_count else None

    def mark(self) -> Mark:
        """How far everything has grown."""
        rows = {kind: columns.rows for kind, columns in self._columns.items()}
        return Mark(rows, len(self.names), len(self.texts), len(self._thread_codes))

    def content(self) -> Content | None:
        """What has been read; nothing must be added afterwards. None where it cannot be put together with other's,
        because ids of processes and threads are texts, whose numbers depend on what came before.
        """
        if len(self._thread_texts):
            return None
        return Content(
            columns={kind: c.finish() for kind, c in self._columns.items()},
            names=self.names.values(),
            texts=self.texts.values(),
            threads=self._thread_codes.values(),
            counts=(self.event_count, self.slice_count, self.lost, self._index_count),
            index_range=self._index_range,
            categories=self.categories,
            thread_names=self._thread_meta,
        )

    def take(
        self,
        columns: dict[str, dict[str, Any]],
        names: Codes[str],
        texts: Codes[bytes],
        threads: Codes[tuple[int, int]],
        other: Content,
    ) -> None:
        """Has `columns` and dictionaries instead of its own: those hold what `other` has read too."""
        self._columns = {kind: Columns.of(arrays) for kind, arrays in columns.items()}
        self.names, self.texts, self._thread_codes = names, texts, threads
        events, slices, lost, indices = other.counts
        self.event_count += events
        self.slice_count += slices
        self.lost += lost
        self._index_count += indices
        self._index_range = (
            min(self._index_range[0], other.index_range[0]),
            max(self._index_range[1], other.index_range[1]),
        )
        self.categories += other.categories
        self._thread_meta |= other.thread_names

    def finish(self) -> dict[str, Any]:
        """The tables, sorted by time, times counted from the first event, threads numbered."""
        columns = {kind: c.finish() for kind, c in self._columns.items()}
        origin = min((int(c[_time_of(kind)].min()) for kind, c in columns.items() if len(c[_time_of(kind)])), default=0)
        self.start_ns = None if self.base_us is None else int(self.base_us) * 1000 + origin
        self._threads, number = _numbered(self._thread_codes.values())
        tables = {}
        for kind, c in columns.items():
            if "thread" in c:
                c["thread"] = number[c["thread"]]
            c[_time_of(kind)] -= origin
            tables[_FIELDS[kind]] = _sorted(_TABLES[kind], c)
        return tables

    def threads(self) -> list[Thread]:
        texts = self._thread_texts.values()

        def shown(code: int) -> int | str:
            place = _TEXT_THREADS - code
            return texts[place] if 0 <= place < len(texts) else code

        names = {(str(_whole(p)), str(_whole(t))): name for (p, t), name in self._thread_meta.items()}
        return [
            Thread(shown(pid), shown(tid), names.get((str(shown(pid)), str(shown(tid))), ""))
            for pid, tid in self._threads
        ]


_TABLES: dict[str, type[Any]] = {
    cat.GPU: GpuTable,
    cat.RUNTIME: RuntimeTable,
    cat.OP: OpTable,
    cat.ANNOTATION: AnnotationTable,
    cat.PYTHON: PythonTable,
    cat.SYNC: SyncTable,
    "memory": MemoryTable,
    "flows": FlowTable,
}
_FIELDS = {
    cat.GPU: "gpu",
    cat.RUNTIME: "runtime",
    cat.OP: "ops",
    cat.ANNOTATION: "annotations",
    cat.PYTHON: "python",
    cat.SYNC: "sync",
    "memory": "memory",
    "flows": "flows",
}
_DEVICE_TABLES = (cat.GPU, cat.SYNC)


def _numbered(pairs: list[tuple[int, int]]) -> tuple[list[tuple[int, int]], I4]:
    """Pairs in their order, and the place of each."""
    places = {pair: place for place, pair in enumerate(sorted(pairs))}
    return list(places), np.array([places[pair] for pair in pairs], np.int32)


def _time_of(kind: str) -> str:
    return "time" if kind in ("memory", "flows") else "start"


def _sorted(table: type[T], columns: dict[str, Any]) -> T:
    """The table by time; a column at a time is held twice."""
    time = columns["time" if "time" in columns else "start"]
    if (time[1:] < time[:-1]).any():
        order = np.argsort(time, kind="stable").astype(np.int32)
        for name, values in columns.items():
            columns[name] = values[order]
    return table(**columns)


class _Appends(dict[type, Callable[[Any], None]]):
    """How to add an event to the list of its type."""

    def __init__(self) -> None:
        self.lists: dict[type, list[Any]] = {}

    def __missing__(self, kind: type) -> Callable[[Any], None]:
        self.lists[kind] = []
        self[kind] = self.lists[kind].append
        return self[kind]


def _by_type(events: Sequence[Event]) -> dict[type, list[Any]]:
    appends = _Appends()
    for kind, event in zip(map(type, events), events, strict=True):
        appends[kind](event)
    return appends.lists


def _by_category(slices: Sequence[Slice]) -> dict[str, list[Slice]]:
    groups: defaultdict[str, list[Slice]] = defaultdict(list)
    for one in slices:
        groups[one.cat].append(one)
    return groups


def _gpu_kind(category: str) -> int:
    return MEMCPY if category in cat.MEMCPY_CATEGORIES else MEMSET if category in cat.MEMSET_CATEGORIES else KERNEL


def _gpu_numbers(args: list[Any]) -> dict[str, list[Any]]:
    return {
        "device": [a.device for a in args],
        "stream": [a.stream for a in args],
        "correlation": [a.correlation for a in args],
        "bytes": [a.bytes for a in args],
        "collective_elements": [a.collective_elements for a in args],
        "group_size": [a.group_size for a in args],
        "collective_sequence": [a.collective_sequence for a in args],
    }


def _triples(values: list[Any]) -> Floats:
    found = triples(values)
    if found is None:
        found = np.array([v if isinstance(v, tuple) else triple(v) for v in values])
    fit(found.T, ("i4", "i4", "i4"))
    return found


def _meta_name(args: msgspec.Raw) -> str:
    try:
        value = msgspec.json.decode(args)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    return str(value.get("name", "")) if isinstance(value, dict) else ""


def _whole(value: float | str) -> int | str:
    return int(value) if isinstance(value, float) else value
