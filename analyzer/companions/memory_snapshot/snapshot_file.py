"""A memory snapshot as tables: the history of the allocator, its blocks and segments at the end, and marks of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.companions.memory_snapshot.entry_columns import OOM, Entries, action_code
from traceopt.analyzer.companions.memory_snapshot.plain_pickle import PlainPickle
from traceopt.analyzer.reading.limits import most_text_bytes
from traceopt.analyzer.reading.sources import TraceSource
from traceopt.analyzer.tables.schema import I8
from traceopt.errors import InputError, one_line

_MOST_BYTES = 1 << 60  # a size or an address beyond this is damage
_MOST_DEVICES = 1024
_ACTIVE = ("active_allocated", "active_pending_free", "active_awaiting_free")

Frame = tuple[str, int, str]  # file, line, function


class Blocks(Struct, frozen=True):
    """The blocks of all segments when the snapshot was taken. Arrays have shape (blocks,). `requested` is the size that
    was asked for, `segment` the row of `Segments`, `stack` -1 where none was recorded.
    """

    address: I8
    size: I8
    requested: I8
    active: npt.NDArray[np.bool_]
    segment: I8
    stack: I8


class Segments(Struct, frozen=True):
    """Memory that the allocator holds. Arrays have shape (segments,)."""

    size: I8
    free: npt.NDArray[np.bool_]  # no block of it is active


class Mark(Struct, frozen=True):
    """The start or the end of a `record_function` range."""

    name: str
    ends: bool
    time_us: int


class SnapshotTables(Struct, frozen=True):
    """One device of one snapshot. `stacks` are rows of `frames`, innermost first."""

    label: str
    device: int
    entries: Entries
    blocks: Blocks
    segments: Segments
    marks: list[Mark]
    settings: str  # PYTORCH_CUDA_ALLOC_CONF
    expandable: bool
    frames: list[Frame]
    stacks: list[tuple[int, ...]]


def read_tables(files: Sequence[TraceSource], warnings: list[str]) -> SnapshotTables | None:
    """The snapshot of the run: the latest one that recorded a failed allocation, else the latest. The others, and files
    that cannot be read, are warnings. None if the snapshots are empty. Raises InputError if no file can be read.
    """
    read: list[SnapshotTables] = []
    failed: list[str] = []
    for file in files:
        try:
            read.append(_read_one(file))
        except InputError as error:
            if file.named or len(files) == 1:
                raise
            failed.append(one_line(str(error)))
    if failed and not read:
        raise InputError(failed[0])
    warnings += failed
    chosen = max(read, key=_importance, default=None)
    others = [snapshot.label for snapshot in read if snapshot is not chosen]
    if chosen is not None and others:
        warnings.append(f"the report shows {chosen.label}; also found: {', '.join(others)}")
    return chosen


def _importance(tables: SnapshotTables) -> tuple[bool, int]:
    time = tables.entries.time_us
    return bool((tables.entries.action == OOM).any()), int(time[-1]) if len(time) else -1


def _read_one(file: TraceSource) -> SnapshotTables:
    with file.open() as stream:
        reader = PlainPickle(stream, file.label, most_text_bytes())
        value = reader.load()
    if not isinstance(value, dict) or not isinstance(value.get("segments"), list):
        raise InputError(f"{file.label} is no memory snapshot: it has no list of segments")
    traces = _list(value.get("device_traces"))
    histories = [_entries(_list(trace), reader) for trace in traces]
    _add_failure(histories, value.get("traceopt"), reader)
    segments = [one for one in _list(value.get("segments")) if isinstance(one, dict)]
    device = _busiest(histories, segments)
    blocks, kept = _blocks([segment for segment in segments if _int(segment.get("device")) in (device, -1)], reader)
    settings = value.get("allocator_settings")
    settings = settings if isinstance(settings, dict) else {}
    conf = settings.get("PYTORCH_CUDA_ALLOC_CONF") or settings.get("PYTORCH_ALLOC_CONF")
    return SnapshotTables(
        label=file.label,
        device=device,
        entries=histories[device] if device < len(histories) else _join([]),
        blocks=blocks,
        segments=kept,
        marks=_marks(_list(value.get("external_annotations")), device),
        settings=conf[:300] if isinstance(conf, str) else "",
        expandable=settings.get("expandable_segments") is True or any(s.get("is_expandable") is True for s in segments),
        frames=reader.frames,
        stacks=reader.stacks,
    )


def _add_failure(histories: list[Entries], added: Any, reader: PlainPickle) -> None:
    """The failed allocation that `traceopt run` noted, unless the history has it."""
    failed = added.get("out_of_memory") if isinstance(added, dict) else None
    device = _int(failed.get("device")) if isinstance(failed, dict) else -1
    if not isinstance(failed, dict) or not 0 <= device < _MOST_DEVICES:
        return
    histories += [_join([])] * (device + 1 - len(histories))
    history = histories[device]
    if (history.action == OOM).any():
        return
    entry = {
        "action": "oom",
        "device_free": failed.get("device_free"),
        "size": failed.get("requested"),
        "time_us": int(history.time_us[-1]) if len(history) else -1,
        "frames": failed.get("frames"),
    }
    histories[device] = _join([history, _from_dicts([entry], reader)])


def _busiest(histories: list[Entries], segments: list[dict[str, Any]]) -> int:
    """The device with the longest history; without any, the one that holds most memory."""
    lengths = [len(history) for history in histories]
    if any(lengths):
        return lengths.index(max(lengths))
    held: dict[int, int] = {}
    for segment in segments:
        device = max(0, _int(segment.get("device")))
        held[device] = held.get(device, 0) + max(0, _int(segment.get("total_size")))
    return max(held, key=lambda device: held[device], default=0)


def _entries(trace: list[Any], reader: PlainPickle) -> Entries:
    parts: list[Entries] = []
    single: list[dict[Any, Any]] = []
    for item in [*trace, None]:
        if isinstance(item, dict):
            single.append(item)
            continue
        if single:
            parts.append(_from_dicts(single, reader))
            single = []
        if isinstance(item, Entries):
            parts.append(item)
    trace.clear()
    return _join(parts)


def _from_dicts(entries: list[dict[Any, Any]], reader: PlainPickle) -> Entries:
    def numbers(name: str, other: str = "") -> I8:
        return np.array([_int(entry.get(name, entry.get(other))) for entry in entries], np.int64)

    stacks = [reader.stack_of(entry.get("frames")) for entry in entries]
    return Entries(
        np.array([action_code(entry.get("action")) for entry in entries], np.int8),
        numbers("addr", "device_free"),
        numbers("size"),
        numbers("time_us"),
        np.array([-1 if stack is None else stack for stack in stacks], np.int32),
    )


def _join(parts: list[Entries]) -> Entries:
    """All parts in one, and `parts` empty: both together would be the most memory that reading takes. Rows of unknown
    actions, and sizes that cannot be, are left out.
    """
    rows = sum(len(part) for part in parts)
    joined = Entries(
        action=np.empty(rows, np.int8),
        address=np.empty(rows, np.int64),
        size=np.empty(rows, np.int64),
        time_us=np.empty(rows, np.int64),
        stack=np.empty(rows, np.int32),
    )
    while parts:
        part = parts.pop()
        rows -= len(part)
        joined.put(rows, part)
    good = (joined.action >= 0) & (joined.size >= 0) & (joined.size < _MOST_BYTES)
    return joined if good.all() else joined.where(good)


def _blocks(segments: list[dict[str, Any]], reader: PlainPickle) -> tuple[Blocks, Segments]:
    rows: list[tuple[int, int, int, bool, int, int]] = []
    sizes, free = [], []
    for number, segment in enumerate(segments):
        address = _int(segment.get("address"))
        active = False
        for block in _list(segment.get("blocks")):
            if not isinstance(block, dict):
                continue
            size = _size(block.get("size"))
            at = _int(block.get("address")) if "address" in block else address
            used = block.get("state") in _ACTIVE
            stack = reader.stack_of(block.get("frames"))
            requested = _size(block.get("requested_size")) or size
            rows.append((at, size, requested, used, number, -1 if stack is None else stack))
            active |= used
            address = at + size
        sizes.append(_size(segment.get("total_size")))
        free.append(not active)
    columns = list(zip(*rows, strict=True)) if rows else [()] * 6
    arrays = [np.array(column, np.int64) for column in columns]
    blocks = Blocks(arrays[0], arrays[1], arrays[2], arrays[3].astype(bool), arrays[4], arrays[5])
    return blocks, Segments(np.array(sizes, np.int64), np.array(free, bool))


def _marks(annotations: list[Any], device: int) -> list[Mark]:
    """The marks of one device, in order of time; each range is recorded once for every device."""
    marks = []
    for annotation in annotations:
        if not isinstance(annotation, dict) or _int(annotation.get("device")) not in (device, -1):
            continue
        name, stage = annotation.get("name"), annotation.get("stage")
        if isinstance(name, str) and stage in ("START", "END"):
            marks.append(Mark(name[:1024], stage == "END", _int(annotation.get("time_us"))))
    return sorted(marks, key=lambda mark: mark.time_us)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _int(value: Any) -> int:
    return value if isinstance(value, int) and abs(value) < 1 << 62 else -1


def _size(value: Any) -> int:
    size = _int(value)
    return size if 0 <= size < _MOST_BYTES else 0
