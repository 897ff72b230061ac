"""Builds tables from decoded events: group by table, append to growing columns, sort and number at the end."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import chain, islice
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.codes import Codes
from traceopt.analyzer.reading.event_fields import (
    ARROWS,
    COUNTERS,
    FLOWS,
    MEMORY,
    TABLES,
    TableEvents,
    by_category,
    by_type,
    counted,
    gpu_kind,
    is_reading,
    labels_of,
)
from traceopt.analyzer.reading.event_types import (
    NO_TEXT,
    Arrow,
    Complete,
    CounterRange,
    Event,
    Flow,
    FlowStart,
    Instant,
    Meta,
    PhaseReading,
    Point,
    Reading,
    Slice,
    number,
    triple,
)
from traceopt.analyzer.reading.finishing.launch_ids import with_launch_ids
from traceopt.analyzer.reading.finishing.overheads import with_overheads
from traceopt.analyzer.reading.growing_columns import Floats, GrowingColumns, fit, floats, triples
from traceopt.analyzer.reading.thread_codes import ThreadCodes, name_in
from traceopt.analyzer.tables.counter_ranges import CounterRanges, RangeTotals
from traceopt.analyzer.tables.schema import GpuTable, OpTable, T
from traceopt.analyzer.vocabulary import event_categories as cat
from traceopt.analyzer.vocabulary.counter_names import locks_clocks

_FARTHEST_US = 86_400e6  # a time or a duration beyond a day is damage: traces hold seconds to minutes
_LATEST_US = 2.0**63  # a later time is damage, even of a file in nanoseconds since 1970
_TIMES_ENOUGH = 1000  # enough times for a median that damage cannot shift far
TEXT_COLUMNS = frozenset(GpuTable.of_args("Text")) | frozenset(OpTable.of_args("Text"))
_NO_TEXTS = (b"", b"null", b'""')
_SEPARATOR = b"\0"  # almost never occurs in JSON text


class Mark(Struct, frozen=True):
    """The size of a builder at some point: rows by table, and the sizes of its dictionaries."""

    rows: dict[str, int]
    names: int
    texts: int
    threads: int


class Content(Struct, frozen=True):
    """Everything that a builder has read, as one process sends it to another."""

    columns: dict[str, dict[str, Any]]
    names: list[str]
    texts: list[bytes]
    threads: list[tuple[int, int]]
    # Events, slices, lost events, ends of arrows, events with an index, operators with one and without.
    counts: tuple[int, int, int, int, int, int, int]
    index_range: tuple[float, float]
    categories: Counter[str]
    thread_names: dict[tuple[float | str, float | str], str]
    counter_ranges: tuple[CounterRanges, ...] = ()


def base_of(events: Sequence[Event]) -> float | None:
    """A whole microsecond near the times of the events: their median, because the first time may be damaged."""
    possible = (time for event in events if abs(time := getattr(event, "ts", math.nan)) < _LATEST_US)
    times = sorted(islice(possible, _TIMES_ENOUGH))
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
        self._indexed_ops = self._unindexed_ops = 0
        self.arrow_ends = 0  # of arrows from launches to their work
        self.categories: Counter[str] = Counter()
        self.start_ns: int | None = None  # of the first event, on the file's clock
        self.base_us: float | None = None  # origin of times while the file is read
        self.threads = ThreadCodes()
        self._index_range = (np.inf, -np.inf)
        self._index_count = 0
        self._has_correlations = False  # so that arrows say nothing new
        self._ranges = RangeTotals()
        self._columns = {kind: GrowingColumns(table.columns.SCHEMA) for kind, table in TABLES.items()}

    def add(self, events: Sequence[Event]) -> None:
        """Appends one chunk of events."""
        self.event_count += len(events)
        if self.base_us is None:
            self.base_us = base_of(events)
        alike_by_type = by_type(events)
        for table, slices in self._slices(alike_by_type).items():
            names = labels_of(slices.events) if table == cat.GPU else [e.name for e in slices.events]
            columns: dict[str, Any] = {"name": self.names.encode(names, len(names))}
            if table == cat.GPU:
                columns["kind"] = slices.per_event(gpu_kind)
            elif table == cat.PYTHON:
                columns["call_line"] = -1
            self._append(table, slices.events, columns)
        for kind, alike in alike_by_type.items():
            if issubclass(kind, (Instant, Point)):
                self._append(MEMORY, [e for e in alike if e.name == "[memory]"], {})
            elif issubclass(kind, Arrow):
                self._arrows(alike)
            elif issubclass(kind, Flow):
                self._append(FLOWS, alike, {})
            elif issubclass(kind, FlowStart):
                self._append(FLOWS, [e for e in alike if e.cat in cat.FORWARD_BACKWARD_FLOWS], {})
                self._arrows([e for e in alike if e.cat in cat.ARROWS])
            elif issubclass(kind, Reading):
                self._readings(alike)
            elif issubclass(kind, CounterRange):
                for one in alike:
                    self._ranges.add(one.name, one.args)
            elif kind is PhaseReading:
                self._readings(list(filter(is_reading, alike)))
            elif kind is Meta:
                named = [e for e in alike if e.name == "thread_name"]
                self.threads.names |= {(e.pid or 0.0, e.tid or 0.0): name_in(e.args) for e in named}
                processes = [name_in(e.args) for e in alike if e.name == "process_name"]
                self.categories += Counter(filter(None, map(cat.device_process, processes)))

    def _arrows(self, events: list[Any]) -> None:
        """Ends of arrows from launches to their work."""
        self.arrow_ends += len(events)
        if not self._has_correlations:
            self._append(ARROWS, events, {})

    def _readings(self, events: list[Any]) -> None:
        """Readings of hardware counters."""
        if events:
            sampled = sum(locks_clocks(str(event.name)) for event in events)
            self.categories += Counter({cat.HARDWARE_COUNTERS: sampled})
            found = counted(events)
            names = self.names.encode([one.name for one in found], len(found))
            self._append(COUNTERS, found, {"name": names, "value": np.array([one.value for one in found])})

    def _slices(self, alike_by_type: dict[type, list[Any]]) -> dict[str, TableEvents]:
        """The complete events, by table."""
        found: defaultdict[str, TableEvents] = defaultdict(TableEvents)
        for kind, alike in alike_by_type.items():
            if kind is Slice:
                of_category = by_category(alike)
            elif issubclass(kind, Complete):
                of_category = {kind.category: alike}
            else:
                continue
            for category, slices in of_category.items():
                if category in cat.ARROWS or category in cat.FORWARD_BACKWARD_FLOWS:
                    self.lost += len(slices)  # arrows are not complete events: two events run into each other
                    continue
                self.slice_count += len(slices)
                self.categories[category] += len(slices)
                if kind is Slice and not category:
                    self.categories += Counter(str(e.pid) for e in slices if e.pid in cat.LEGACY_AUTOGRAD)
                table = cat.TABLE_OF_CATEGORY.get(category, cat.IGNORED)
                if category in cat.OP_CATEGORIES_WITH_ANNOTATIONS:
                    found[cat.ANNOTATION].add(category, [e for e in slices if cat.is_annotation(e.name)])
                    slices = [e for e in slices if not cat.is_annotation(e.name)]
                if table != cat.IGNORED:
                    found[table].add(category, slices)
        return found

    def _append(self, table: str, events: list[Any], columns: dict[str, Any]) -> None:
        """Appends the events that have a valid time, with additional columns; counts the others as lost."""
        if not events:
            return
        fields = TABLES[table].fields(events)
        columns |= {name: self._texts(values) for name, values in fields.texts.items()}
        columns |= {name: np.array(values) for name, values in fields.flags.items()}
        columns |= _triples(fields.triples)
        block = self._floats(fields.numbers)
        block[0] -= self.base_us or 0.0  # before scaling: epoch microseconds need 51 bits
        if not np.abs(block[0]).max() < _FARTHEST_US:
            timed = np.abs(block[0]) < _FARTHEST_US
            self.lost += int(len(timed) - timed.sum())
            block = block[:, timed]
            columns = {name: v if isinstance(v, int) else v[timed] for name, v in columns.items()}
        rows = dict(zip(fields.numbers, block, strict=True))
        times = 2 if "duration" in rows else 1
        if times == 2:
            duration = rows["duration"]
            duration[~((duration > 0) & (duration < _FARTHEST_US))] = 0
        block[:times] *= 1e3
        np.rint(block[:times], out=block[:times])
        # Python frames have no index here: the profiler numbers them separately, after all operators.
        if "event_index" in rows:
            self._count_indices(rows["event_index"], table)
        if table == cat.GPU:  # in GPU-only and 2021 files the process id is the device
            np.copyto(rows["device"], rows["pid"], where=rows["device"] < 0)
        if "correlation" in rows:
            self._has_correlations |= bool((rows["correlation"] > 0).any())
        schema = TABLES[table].columns.SCHEMA
        fit(block[times:], tuple(schema.get(name, "i8") for name in fields.numbers)[times:])
        if "thread" in schema:
            columns["thread"] = self.threads.encode(rows["pid"], rows["tid"])
        self._columns[table].append(block.shape[1], columns | rows)

    def _floats(self, numbers: dict[str, list[Any]]) -> Floats:
        """The lists as rows; numeric strings are converted, anything else becomes -1."""
        fast = floats(list(numbers.values()))
        if fast is not None:
            return fast
        block = np.empty((len(numbers), len(next(iter(numbers.values())))))
        for row, (name, values) in zip(block, numbers.items(), strict=True):
            fast = floats([values])
            if fast is not None:
                row[:] = fast[0]
            else:
                row[:] = list(map(self.threads.number_of if name in ("pid", "tid") else number, values))
        return block

    def _texts(self, values: list[msgspec.Raw]) -> npt.NDArray[np.int32] | int:
        """Codes of raw JSON texts, -1 for "not in the event"."""
        if values.count(NO_TEXT) == len(values):
            return -1
        text, first = _SEPARATOR.join(values), bytes(values[0])
        alike = len(text) == len(first) * len(values) + len(values) - 1
        if alike and text == _SEPARATOR.join([first] * len(values)):  # often "" for all, if nothing was recorded
            code = int(self.texts.encode((first,), 1)[0])
            return code if code >= len(_NO_TEXTS) else -1
        texts = text.split(_SEPARATOR)  # half the cost of bytes(value) for each
        codes = self.texts.encode(texts if len(texts) == len(values) else map(bytes, values), len(values))
        codes[codes < len(_NO_TEXTS)] = -1
        return codes

    def _count_indices(self, indices: Floats, table: str) -> None:
        known = indices[indices >= 0]
        if table == cat.OP:
            self._indexed_ops += len(known)
            self._unindexed_ops += len(indices) - len(known)
        if len(known):
            low, high = self._index_range
            self._index_range = (min(low, float(known.min())), max(high, float(known.max())))
            self._index_count += len(known)

    def torn_operators(self) -> int:
        """Operators without an index, if others have one: the start of one event and the end of another."""
        return self._unindexed_ops if self._indexed_ops else 0

    def recorded_index_share(self) -> float | None:
        low, high = self._index_range
        return min(1.0, self._index_count / (high - low + 1)) if self._index_count else None

    def mark(self) -> Mark:
        """The current size of everything."""
        rows = {kind: columns.rows for kind, columns in self._columns.items()}
        return Mark(rows, len(self.names), len(self.texts), len(self.threads.codes))

    def content(self) -> Content | None:
        """Everything that was read; nothing may be added afterwards. None if it cannot be merged with another builder's
        content because process or thread ids are strings, which are numbered in order of appearance.
        """
        if len(self.threads.texts):
            return None
        return Content(
            columns={kind: c.finish() for kind, c in self._columns.items()},
            names=self.names.values(),
            texts=self.texts.values(),
            threads=self.threads.codes.values(),
            counts=(
                self.event_count,
                self.slice_count,
                self.lost,
                self.arrow_ends,
                self._index_count,
                self._indexed_ops,
                self._unindexed_ops,
            ),
            index_range=self._index_range,
            categories=self.categories,
            thread_names=self.threads.names,
            counter_ranges=self._ranges.finish(),
        )

    def take(
        self,
        columns: dict[str, dict[str, Any]],
        names: Codes[str],
        texts: Codes[bytes],
        threads: Codes[tuple[int, int]],
        other: Content,
    ) -> None:
        """Replaces its own columns and dictionaries by merged ones, which include what `other` has read."""
        self._columns = {kind: GrowingColumns.of(arrays) for kind, arrays in columns.items()}
        self.names, self.texts, self.threads.codes = names, texts, threads
        events, slices, lost, arrow_ends, indices, indexed_ops, unindexed_ops = other.counts
        self.event_count += events
        self.slice_count += slices
        self.lost += lost
        self.arrow_ends += arrow_ends
        self._index_count += indices
        self._indexed_ops += indexed_ops
        self._unindexed_ops += unindexed_ops
        self._index_range = (
            min(self._index_range[0], other.index_range[0]),
            max(self._index_range[1], other.index_range[1]),
        )
        self.categories += other.categories
        self.threads.names |= other.thread_names
        self._ranges.merge(other.counter_ranges)

    def finish(self) -> dict[str, Any]:
        """The tables: sorted by time, times counted from the first event, threads numbered."""
        columns = {kind: c.finish() for kind, c in self._columns.items()}
        times = (c[TABLES[kind].time] for kind, c in columns.items() if kind not in _WITHOUT_TABLE)
        origin = min((int(time.min()) for time in times if len(time)), default=0)
        self.start_ns = None if self.base_us is None else int(self.base_us) * 1000 + origin
        threads, number = self.threads.in_order()
        tables = {}
        for kind, c in columns.items():
            if "thread" in c:
                c["thread"] = number[c["thread"]]
            table = TABLES[kind]
            c[table.time] -= origin
            tables[table.attribute] = _sorted(table.columns, c)
        arrows, overheads = (tables.pop(TABLES[kind].attribute) for kind in _WITHOUT_TABLE)
        names = self.names.values()
        tables["runtime"], tables["gpu"], tables["sync"] = with_launch_ids(
            tables["runtime"], tables["gpu"], tables["sync"], arrows, threads, names
        )
        others = [tables[name] for name in ("ops", "annotations", "python")]
        return tables | {"runtime": with_overheads(tables["runtime"], overheads, others, names)}

    def counter_ranges(self) -> tuple[CounterRanges, ...]:
        return self._ranges.finish()


_WITHOUT_TABLE = (ARROWS, cat.OVERHEAD)  # what they say goes into other tables


def _sorted(table: type[T], columns: dict[str, Any]) -> T:
    """The table sorted by time; only one column at a time is held twice."""
    time = columns["time" if "time" in columns else "start"]
    if (time[1:] < time[:-1]).any():
        order = np.argsort(time, kind="stable").astype(np.int32)
        for name, values in columns.items():
            columns[name] = values[order]
    return table(**columns)


def _triples(lists: dict[str, list[Any]]) -> dict[str, Floats]:
    """Columns of triples; anything else becomes -1."""
    if not lists:
        return {}
    values = list(chain.from_iterable(lists.values()))
    found = triples(values)
    if found is None:
        found = np.array([v if isinstance(v, tuple) else triple(v) for v in values])
    fit(found.T, ("i4", "i4", "i4"))
    return dict(zip(lists, found.reshape(len(lists), -1, 3), strict=True))
