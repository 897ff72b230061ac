"""Packets of a Perfetto trace, as PyTorch 2.15 writes it, to the same events as those of a JSON trace.

`torch/profiler/_cuspy/trace.py` and `cuspy_pftrace.h` define what it writes. Operators, Python frames and calls are
slices of threads: for each kind first the packets that begin them, then those that end them, in the same order. Work of
the GPU is a render stage with its duration. Times count in ns, and the clock snapshot at the start says from when.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw, Struct, field

from traceopt.analyzer.reading.event_types import Event, Meta, PhaseReading, Slice, SliceArgs
from traceopt.analyzer.reading.perfetto.arguments import Arguments, Texts, of_slices, of_work
from traceopt.analyzer.reading.perfetto.dictionaries import Dictionaries, Track, named
from traceopt.analyzer.reading.perfetto.wire import FIXED64, Fields, packed, packets_of, read_fields
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.tables.trace import CUT_OFF
from traceopt.analyzer.vocabulary.event_categories import GRAPH_CALLBACK

_CHUNK_BYTES = 4 << 20  # are decoded together
_MOST_PACKET_BYTES = 64 << 20  # the largest holds all names
_REALTIME = 1  # BuiltinClock
_BEGIN, _END = 1, 2  # TrackEvent.Type
# Fields of TracePacket.
_SNAPSHOT, _TIMESTAMP, _TRACK_EVENT, _INTERNED, _COUNTER, _RENDER, _DESCRIPTOR = 6, 8, 11, 12, 52, 53, 60
_NOWHERE = Track(-1.0, -1.0)
_OVERHEAD_PID = 0x7FFFFFFF  # -1 in 31 bits
_CATEGORY_OF_STAGE = {
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Annotation": "gpu_user_annotation",
    "EventRecord": "graph_event_node",
    GRAPH_CALLBACK: "graph_host_node",
}
_ARCHITECTURE = re.compile(r"sm_(\d{1,2})(\d)")
_LANE = re.compile(r"\[(\d{1,10})\]")  # begins the name of a stream


class _Begun(Struct, frozen=True):
    """Slices that have begun together in the file. Arrays have shape (slices,)."""

    time: I8  # ns
    track: I8
    names: list[str]
    categories: list[str]
    arguments: Arguments

    def take(self, rows: slice) -> _Begun:
        names, categories = self.names[rows], self.categories[rows]
        return _Begun(self.time[rows], self.track[rows], names, categories, self.arguments.take(rows))


def process_and_start(start: bytes) -> tuple[int | None, float | None]:
    """The process id and the time of the first slice (seconds since 1970), if the packets at the start of a trace have
    them, else None.
    """
    begins, ends = packets_of(start)
    packets = read_fields(packed(start), np.array(begins), np.array(ends))
    threads = Dictionaries().add_tracks(packets.of(_DESCRIPTOR))
    times = packets.numbers(_TIMESTAMP, len(begins))[packets.of(_TRACK_EVENT).message]
    process = next((int(thread.pid) for thread in threads if thread.pid not in (0, _OVERHEAD_PID)), None)
    return process, float(times[0]) / 1e9 if len(times) else None


class PerfettoStream(Struct):
    """Iterates over lists of events in blocks of a Perfetto trace.

    After the iteration: `header` says the clock and the architecture of the GPU, `lost` counts packets and slices that
    could not be read, `damage` describes what is wrong with the file, or is None.
    """

    blocks: Iterable[bytes]
    lost: int = 0
    repaired: int = 0  # as in EventStream: no packet can be read after a repair
    unread_bytes: int = 0  # as in EventStream: not counted here
    damage: str | None = None
    header: dict[str, Any] = {}
    _base_ns: int = 0
    _known: Dictionaries = field(default_factory=Dictionaries)
    _texts: Texts = field(default_factory=Texts)
    _begun: deque[_Begun] = field(default_factory=deque)
    _ends: list[tuple[I8, I8]] = []  # times and tracks, not yet given to slices

    def __iter__(self) -> Iterator[list[Event]]:
        waiting = bytearray()
        for block in self.blocks:
            if len(waiting) > _MOST_PACKET_BYTES:
                continue  # read to the end, for the digest of the file
            waiting += block
            if len(waiting) >= _CHUNK_BYTES:
                yield from self._taken(waiting)
        yield from self._taken(waiting)
        if waiting:
            self.lost += 1
            self.damage = CUT_OFF
        if self._begun or self._ends:
            self.lost += sum(len(one.time) for one in self._begun) + sum(len(time) for time, _ in self._ends)
            self.damage = CUT_OFF

    def _taken(self, waiting: bytearray) -> Iterator[list[Event]]:
        """The events of the complete packets, which are removed."""
        raw = bytes(waiting)
        begins, ends = packets_of(raw)
        if begins:
            data = packed(raw)
            yield from self._events(read_fields(data, np.array(begins), np.array(ends)), len(begins))
            if data.damaged:
                self.lost += data.damaged
                self.damage = "packets of the file are damaged"
            del waiting[: ends[-1]]

    def _events(self, packets: Fields, count: int) -> Iterator[list[Event]]:
        time = packets.numbers(_TIMESTAMP, count)
        self._set_clock(packets.of(_SNAPSHOT))
        self._known.add(packets.of(_INTERNED).inside())
        yield [_thread_name(track) for track in self._known.add_tracks(packets.of(_DESCRIPTOR))]
        yield from self._slices(packets.of(_TRACK_EVENT), time)
        yield self._work(packets.of(_RENDER), time)
        yield self._readings(packets.of(_COUNTER), time)

    def _set_clock(self, snapshots: Fields) -> None:
        clocks = snapshots.inside().of(1)
        fields = clocks.inside()
        ids, times = fields.numbers(1, len(clocks)), fields.numbers(2, len(clocks))
        for base_ns in times[ids == _REALTIME].tolist():
            self._base_ns = self.header.setdefault("baseTimeNanoseconds", base_ns)

    def _us(self, time: I8) -> list[float]:
        us: list[float] = ((time - self._base_ns) / 1000).tolist()
        return us

    def _slices(self, held: Fields, time: I8) -> Iterator[list[Event]]:
        """The slices that have ended."""
        fields = held.inside()
        kind, track = fields.numbers(9, len(held)), fields.numbers(11, len(held))
        at = time[held.message]
        ends = np.flatnonzero(kind == _END)
        if len(ends):
            self._ends.append((at[ends], track[ends]))
        begins = np.flatnonzero(kind == _BEGIN)
        if len(begins):
            place = np.full(len(held), -1, np.int64)
            place[begins] = np.arange(len(begins))
            annotations = fields.of(4)
            annotations = annotations.take(np.flatnonzero(place[annotations.message] >= 0))
            annotations = msgspec.structs.replace(annotations, message=place[annotations.message])
            arguments = of_slices(annotations, len(begins), self._texts)
            names = named(self._known.names, fields.numbers(10, len(held))[begins].tolist())
            categories = named(self._known.categories, fields.numbers(3, len(held))[begins].tolist())
            self._begun.append(_Begun(at[begins], track[begins], names, categories, arguments))
        yield from self._closed()

    def _closed(self) -> Iterator[list[Event]]:
        """The slices that have begun first, with the ends that were read first."""
        if not self._ends:
            return
        time, track = (np.concatenate(columns) for columns in zip(*self._ends, strict=True))
        while self._begun and len(time):
            begun = self._begun.popleft()
            count = min(len(begun.time), len(time))
            if count < len(begun.time):
                self._begun.appendleft(begun.take(slice(count, None)))
                begun = begun.take(slice(count))
            yield self._built(begun, time[:count], track[:count])
            time, track = time[count:], track[count:]
        self._ends = [(time, track)] if len(time) else []

    def _built(self, begun: _Begun, end: I8, track: I8) -> list[Event]:
        fits = (end >= begun.time) & (track == begun.track)
        self.lost += int((~fits).sum())
        tracks = [self._known.tracks.get(one, _NOWHERE) for one in begun.track.tolist()]
        duration = ((end - begun.time) / 1000).tolist()
        columns = (begun.categories, begun.names, tracks, self._us(begun.time), duration, begun.arguments.build())
        return [
            Slice(category or _category(thread, args), name, thread.pid, thread.tid, ts, dur, args)
            for fit, category, name, thread, ts, dur, args in zip(fits.tolist(), *columns, strict=True)
            if fit
        ]

    def _work(self, held: Fields, time: I8) -> list[Event]:
        """Work of the GPUs."""
        count = len(held)
        fields = held.inside()
        extra = of_work(fields.of(6), count)
        columns = extra.columns | self._launches(fields.of(21), count)
        gpu = fields.numbers(11, count).astype(float).tolist()
        if capability := _ARCHITECTURE.fullmatch(extra.architecture):
            about = {"id": int(gpu[0]), "computeMajor": int(capability[1]), "computeMinor": int(capability[2])}
            self.header.setdefault("deviceProperties", [about])  # the exporter asks only for the first
        stages, lanes = (named(self._known.stages, fields.numbers(number, count).tolist()) for number in (14, 13))
        names = named(self._known.names, fields.numbers(20, count).tolist())
        for row, callback in extra.callbacks.items():
            names[row] = f"{GRAPH_CALLBACK}: {callback}"
        spans = zip(self._us(time[held.message]), (fields.numbers(2, count, 0) / 1000).tolist(), strict=True)
        arguments = Arguments(columns, np.ones(count, bool)).build()
        return [
            Slice(_CATEGORY_OF_STAGE.get(stage, ""), name or stage, device, _stream(lane), ts, dur, args)
            for stage, lane, name, device, (ts, dur), args in zip(
                stages, lanes, names, gpu, spans, arguments, strict=True
            )
        ]

    def _launches(self, launches: Fields, count: int) -> dict[str, list[Any]]:
        """Columns of the launches of kernels."""
        fields = launches.inside()
        columns: dict[str, list[Any]] = {}
        for number, column in ((1, "grid"), (2, "block")):
            sizes = fields.of(number)
            sides = np.full((count, 3), -1.0)
            inside = sizes.inside()
            three = [inside.numbers(side, len(sizes), 1) for side in (1, 2, 3)]
            sides[launches.message[sizes.message]] = np.stack(three, 1)
            columns[column] = list(map(tuple, sides.tolist()))
        arguments = fields.of(3)
        inside = arguments.inside()
        names = named(self._known.arguments, inside.numbers(1, len(arguments)).tolist())
        values, rows = inside.numbers(4, len(arguments)), launches.message[arguments.message]
        for name, column in (("registers_per_thread", "registers"), ("shared_mem_dynamic", "shared_memory")):
            known = np.array([one == name for one in names], bool)
            out = np.full(count, -1.0)
            out[rows[known]] = values[known]
            columns[column] = out.tolist()
        return columns

    def _readings(self, held: Fields, time: I8) -> list[Event]:
        """Readings of counters."""
        fields = held.inside()
        described = fields.numbers(4, len(held))
        counters = fields.of(2)
        inside = counters.inside()
        codes, values = inside.numbers(1, len(counters), 0), inside.numbers(2, len(counters), 0).astype(float)
        doubles = inside.of(3, FIXED64)
        values[doubles.message] = doubles.value.view(np.float64)
        columns = (described[counters.message], codes, values, time[held.message[counters.message]])
        found: list[Event] = []
        for descriptor, code, value, ts in zip(*(column.tolist() for column in columns), strict=True):
            gpu, names = self._known.counters.get(descriptor, (0, {}))
            if code in names:
                us = (ts - self._base_ns) / 1000
                found.append(PhaseReading("", names[code], f"GPU {gpu} Counters", us, {"": value}))
        return found


def _thread_name(track: Track) -> Meta:
    return Meta("thread_name", track.pid, track.tid, Raw(msgspec.json.encode({"name": track.name})))


def _category(track: Track, args: SliceArgs) -> str:
    """Of slices to which the exporter gives none: its own overhead, and waits of streams."""
    return "overhead" if track.pid == _OVERHEAD_PID else "cuda_sync" if args.device != -1 else ""


def _stream(lane: str) -> float:
    found = _LANE.match(lane)
    return float(found[1]) if found else -1.0
