"""Decoded events to tables: grouped by category, appended to growing columns, sorted and numbered at the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer import categories as cat
from traceopt.analyzer.columns import Codes, Columns, floats, triples
from traceopt.analyzer.events import (
    NO_TEXT,
    NO_TRIPLE,
    Event,
    FlowEnd,
    FlowStart,
    Instant,
    Meta,
    Slice,
    number,
    triple,
)
from traceopt.analyzer.tables import (
    I4,
    I8,
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

_FARTHEST_US = 86_400e6  # a time or a duration beyond a day is damage: a trace holds seconds to minutes
_F8 = npt.NDArray[np.float64]

_TEXT_THREADS = -(1 << 40)  # process and thread ids that are texts are numbered from here down
TEXT_COLUMNS = frozenset(
    {"dims", "types", "concrete", "stack", "collective", "collective_dtype", "process_group", "process_group_ranks"}
)
_NO_TEXTS = (b"", b"null", b'""')
_TIMED = (Slice, Instant, FlowStart, FlowEnd)


class Mark(Struct, frozen=True):
    """How far a builder was: rows by kind, names and texts."""

    rows: dict[str, int]
    names: int
    texts: int


class Content(Struct, frozen=True):
    """What a builder has read, as one process sends it to another."""

    columns: dict[str, dict[str, Any]]
    names: list[str]
    texts: list[bytes]
    counts: tuple[int, int, int, int]  # events, slices, lost events, events with an index
    index_range: tuple[float, float]
    categories: Counter[str]
    thread_names: dict[tuple[float | str, float | str], str]


def base_of(events: Sequence[Event]) -> float | None:
    """A whole microsecond amid the times of some events: the median, because the first time may be damaged."""
    times = np.array([event.ts for event in events if isinstance(event, _TIMED)])
    times = times[np.isfinite(times)]
    return float(np.floor(np.median(times))) if len(times) else None


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
        self._threads: list[tuple[int, int]] = []
        self._index_range = (np.inf, -np.inf)
        self._index_count = 0
        raw_thread = {"pid": "i8", "tid": "i8"}
        self._columns = {
            kind: Columns({k: v for k, v in table.SCHEMA.items() if k != "thread"} | raw_thread)
            for kind, table in _TABLES.items()
        }

    def add(self, events: Sequence[Event]) -> None:
        """Appends one chunk's events."""
        self.event_count += len(events)
        if self.base_us is None:
            self.base_us = base_of(events)
        groups: defaultdict[str, list[Slice]] = defaultdict(list)
        others: list[Event] = []
        for event in events:
            if type(event) is Slice:
                groups[event.cat].append(event)
            else:
                others.append(event)
        for category, slices in groups.items():
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
        if others:
            self._add_others(others)

    def _add_slices(self, kind: str, category: str, events: list[Slice]) -> None:
        n = len(events)
        start = self._nanoseconds([e.ts for e in events])
        duration = _numbers([e.dur for e in events])
        columns: dict[str, Any] = {
            "start": start,
            "duration": np.rint(np.where((duration > 0) & (duration < _FARTHEST_US), duration, 0.0) * 1e3),
            "name": self.names.encode([e.name for e in events], n),
            "pid": self._thread_numbers([e.pid for e in events]),
            "tid": self._thread_numbers([e.tid for e in events]),
        }
        args = [e.args for e in events]
        if kind == cat.GPU:
            columns |= self._gpu_columns(category, events, args)
        elif kind == cat.RUNTIME:
            columns["correlation"] = _numbers([a.correlation for a in args])
        elif kind == cat.OP or kind == cat.ANNOTATION:
            # Python frames are numbered apart, after all operators
            self._count_indices(_numbers([a.event_index for a in args]))
            columns["dims"] = self._texts([a.dims for a in args])
            columns["types"] = self._texts([a.types for a in args])
            columns["concrete"] = self._texts([a.concrete for a in args])
            columns["stack"] = self._texts([a.stack for a in args])
            columns["sequence"] = _numbers([a.sequence for a in args])
            columns["forward_thread"] = _numbers([a.forward_thread for a in args])
        elif kind == cat.PYTHON:
            columns["call_line"] = -1
        elif kind == cat.SYNC:
            columns["correlation"] = _numbers([a.correlation for a in args])
            columns["device"] = _numbers([a.device for a in args])
            columns["stream"] = _numbers([a.stream for a in args])
            columns["awaited_stream"] = _numbers([a.awaited_stream for a in args])
            columns["event_record"] = _numbers([a.event_record for a in args])
        self._append(kind, columns, np.isfinite(start))

    def _gpu_columns(self, category: str, events: list[Slice], args: list[Any]) -> dict[str, Any]:
        device = _numbers([a.device for a in args])
        no_device = device < 0
        if no_device.any():  # GPU-only and 2021 files: the process row is the device
            pids = _numbers([e.pid for e in events])
            device = np.where(no_device, pids, device)
        stream = _numbers([a.stream for a in args])
        kind = MEMCPY if category in cat.MEMCPY_CATEGORIES else MEMSET if category in cat.MEMSET_CATEGORIES else KERNEL
        return {
            "kind": kind,
            "device": device,
            "stream": stream,
            "correlation": _numbers([a.correlation for a in args]),
            "bytes": _numbers([a.bytes for a in args]),
            "grid": _triples([a.grid for a in args]),
            "block": _triples([a.block for a in args]),
            "collective": self._texts([a.collective for a in args]),
            "collective_elements": _numbers([a.collective_elements for a in args]),
            "collective_dtype": self._texts([a.collective_dtype for a in args]),
            "group_size": _numbers([a.group_size for a in args]),
            "process_group": self._texts([a.process_group for a in args]),
            "process_group_ranks": self._texts([a.process_group_ranks for a in args]),
            "collective_sequence": _numbers([a.collective_sequence for a in args]),
        }

    def _add_others(self, events: list[Event]) -> None:
        memory = [e for e in events if type(e) is Instant and e.name == "[memory]"]
        if memory:
            time = self._nanoseconds([e.ts for e in memory])
            args = [e.args for e in memory]
            columns = {
                "time": time,
                "bytes": _numbers([a.bytes for a in args]),
                "address": _numbers([a.address for a in args]),
                "allocated": _numbers([a.allocated for a in args]),
                "reserved": _numbers([a.reserved for a in args]),
                "device_type": _numbers([a.device_type for a in args]),
                "device": _numbers([a.device for a in args]),
                "pid": self._thread_numbers([e.pid for e in memory]),
                "tid": self._thread_numbers([e.tid for e in memory]),
            }
            self._append("memory", columns, np.isfinite(time))
        flows = [
            e for e in events if (type(e) is FlowStart or type(e) is FlowEnd) and e.cat in cat.FORWARD_BACKWARD_FLOWS
        ]
        if flows:
            time = self._nanoseconds([e.ts for e in flows])
            columns = {
                "time": time,
                "id": _numbers([e.id for e in flows]),
                "finish": np.array([type(e) is FlowEnd for e in flows]),
                "pid": self._thread_numbers([e.pid for e in flows]),
                "tid": self._thread_numbers([e.tid for e in flows]),
            }
            self._append("flows", columns, np.isfinite(time))
        for event in events:
            if type(event) is Meta and event.name == "thread_name":
                self._thread_meta[event.pid or 0.0, event.tid or 0.0] = _meta_name(event.args)

    def _append(self, kind: str, columns: dict[str, Any], keep: npt.NDArray[np.bool_]) -> None:
        """Adds the rows that have a time; the others are lost."""
        rows = int(keep.sum())
        if rows < len(keep):
            self.lost += len(keep) - rows
            columns = {k: v if isinstance(v, int) else v[keep] for k, v in columns.items()}
        self._columns[kind].append(rows, columns)

    def _nanoseconds(self, times_us: list[float]) -> _F8:
        """Integer nanoseconds (as float64) from the base; NaN where there is no time.

        Epoch microseconds need 51 bits: the difference to the base is taken before the scale.
        """
        offset = _numbers(times_us) - (self.base_us or 0.0)
        offset[~(np.abs(offset) < _FARTHEST_US)] = np.nan
        return np.rint(offset * 1e3)

    def _thread_numbers(self, values: list[float | str | None]) -> _F8:
        """Process and thread ids as numbers; texts that are no number are numbered by their order."""
        fast = floats(values)
        if fast is not None:
            return fast
        out = np.empty(len(values))
        for row, value in enumerate(values):  # 2021 files and odd writers only
            parsed = number(value)
            if parsed == -1.0 and isinstance(value, str):
                parsed = float(_TEXT_THREADS - int(self._thread_texts.encode((value,), 1)[0]))
            out[row] = parsed
        return out

    def _texts(self, values: list[msgspec.Raw]) -> npt.NDArray[np.int32]:
        """Codes of raw JSON texts, -1 for "not in the event"."""
        if values.count(NO_TEXT) == len(values):
            return np.full(len(values), -1, np.int32)
        codes = self.texts.encode(map(bytes, values), len(values))
        codes[codes < len(_NO_TEXTS)] = -1
        return codes

    def _count_indices(self, indices: _F8) -> None:
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
        return Mark({kind: c.rows for kind, c in self._columns.items()}, len(self.names), len(self.texts))

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
            counts=(self.event_count, self.slice_count, self.lost, self._index_count),
            index_range=self._index_range,
            categories=self.categories,
            thread_names=self._thread_meta,
        )

    def take(self, columns: dict[str, dict[str, Any]], names: Codes[str], texts: Codes[bytes], other: Content) -> None:
        """Has `columns` instead of its own, with codes of `names` and `texts`: those hold what `other` has read too."""
        self._columns = {kind: Columns.of(arrays) for kind, arrays in columns.items()}
        self.names, self.texts = names, texts
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
        threaded = [c for kind, c in columns.items() if kind not in _DEVICE_TABLES]
        self._threads, thread = _distinct_pairs(
            np.concatenate([c["pid"] for c in threaded]), np.concatenate([c["tid"] for c in threaded])
        )
        tables = {}
        offset = 0
        for kind, c in columns.items():
            n = len(c["pid"])
            if kind not in _DEVICE_TABLES:
                c["thread"] = thread[offset : offset + n]
                offset += n
            del c["pid"], c["tid"]
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


def _distinct_pairs(first: I8, second: I8) -> tuple[list[tuple[int, int]], I4]:
    """The distinct pairs of two columns, and for every row the index of its pair.

    Rows of one thread stand together in the file: only the first of each run is sorted.
    """
    if not len(first):
        return [], np.empty(0, np.int32)
    changes = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    runs = np.concatenate(([0], np.flatnonzero(changes) + 1))
    distinct, index = np.unique(np.stack((first[runs], second[runs]), axis=1), axis=0, return_inverse=True)
    of_run = index.reshape(-1).astype(np.int32)
    return [(int(a), int(b)) for a, b in distinct], np.repeat(of_run, np.diff(np.append(runs, len(first))))


def _time_of(kind: str) -> str:
    return "time" if kind in ("memory", "flows") else "start"


def _sorted(table: type[T], columns: dict[str, Any]) -> T:
    time = columns["time" if "time" in columns else "start"]
    built = table(**columns)
    if len(time) > 1 and (np.diff(time) < 0).any():
        return built.take(np.argsort(time, kind="stable"))
    return built


def _numbers(values: list[Any]) -> _F8:
    """Floats of decoded numbers; texts that are numbers count, anything else is -1."""
    fast = floats(values)
    return fast if fast is not None else np.array([number(v) for v in values])


def _triples(values: list[Any]) -> _F8:
    fast = triples(values)
    if fast is not None:
        return fast
    return np.array([v if isinstance(v, tuple) else triple(v) for v in values] or [NO_TRIPLE])


def _meta_name(args: msgspec.Raw) -> str:
    try:
        value = msgspec.json.decode(args)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    return str(value.get("name", "")) if isinstance(value, dict) else ""


def _whole(value: float | str) -> int | str:
    return int(value) if isinstance(value, float) else value
