"""The dump of one rank as columns, read from a pickle or from JSON.

The fields are those that `torch/csrc/distributed/c10d/FlightRecorder.hpp` writes from version 2.0 of the format on.
"""

from __future__ import annotations

import gc
import io
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct

from traceopt.analyzer.companions.restricted_pickle import load
from traceopt.analyzer.reading.sources import TraceSource
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.vocabulary.python_frames import is_place, parse_frame
from traceopt.errors import InputError
from traceopt.result.finding import Location

MAX_DUMP_BYTES = 1 << 30  # a dump of 2,000 entries has 2 MB
MAX_RANKS = 1 << 20  # of one process group
MAX_NUMBER = 1 << 61
MAX_NAME = 200  # characters of a group or an operation
MAX_FRAME = 4096

Size = Annotated[tuple[int, ...], Meta(max_length=64)]  # of a tensor, which has at most 64 dimensions
_LISTS = ("input_sizes", "output_sizes", "input_dtypes", "output_dtypes", "frames")

_TRAILING_NUMBER = re.compile(r"([0-9]{1,6})(?:\.\w+)?$")


class Operation(Struct, frozen=True):
    """What a rank calls: "all_reduce" of these sizes (of each input, each output) and types."""

    name: str
    input_sizes: tuple[tuple[int, ...], ...]
    output_sizes: tuple[tuple[int, ...], ...]
    input_dtypes: tuple[str, ...]
    output_dtypes: tuple[str, ...]


class GroupName(Struct, frozen=True):
    """A process group as a rank names it. `ranks`: its members in order; None if the dump does not say."""

    name: str
    description: str
    ranks: tuple[int, ...] | None


class Entries(Struct, frozen=True):
    """One row for each entry, oldest first. Times are ns of the host's clock, 0 where they were not recorded."""

    operations: list[Operation]
    sites: list[Location]
    group: I8  # index into groups
    operation: I8  # index into operations
    site: I8  # index into sites, the user's line of the call; -1 if unknown
    sequence: I8  # number of the collective in its group, or of the point-to-point operation
    is_p2p: Mask
    created_ns: I8
    duration_ns: I8
    timeout_ns: I8
    done: Mask  # completed; for a library without GPU events (gloo): no longer awaited
    timed_out: Mask

    def __len__(self) -> int:
        return len(self.group)


class Dump(Entries, frozen=True):
    """The entries of one rank."""

    rank: int
    label: str
    version: str
    library: str
    wrapped: bool  # the ring buffer has lost older entries
    groups: list[GroupName]


class _Entry(Struct):
    profiling_name: str
    process_group: tuple[str, str]
    record_id: int
    input_sizes: tuple[Size, ...] = ()
    output_sizes: tuple[Size, ...] = ()
    input_dtypes: tuple[str, ...] = ()
    output_dtypes: tuple[str, ...] = ()
    collective_seq_id: int = 0
    p2p_seq_id: int = 0
    is_p2p: bool = False
    state: str = "scheduled"
    retired: bool = False
    time_created_ns: int = 0
    duration_ms: float | None = None
    timeout_ms: int | None = None
    frames: list[Any] = []


class _Group(Struct):
    ranks: str | list[int] = "[]"


class _File(Struct):
    version: str
    entries: list[_Entry] = []
    pg_config: dict[str, _Group] = {}
    comm_lib_version: str = ""
    nccl_version: str = ""  # its name before version 2.8
    rank: int | None = None  # written by the debug server


def read_dump(source: TraceSource) -> Dump:
    """Raises InputError, in one line, for a file that cannot be read."""
    with source.open() as stream:
        data = stream.read(MAX_DUMP_BYTES + 1)
    if len(data) > MAX_DUMP_BYTES:
        raise InputError(f"{source.label} has more than 1 GB, too much for a dump of the flight recorder")
    collecting = gc.isenabled()
    gc.disable()  # it would walk over all entries again and again, and finds nothing
    try:
        return _dump(_decoded(data, source.label), source)
    except (msgspec.MsgspecError, AttributeError, OverflowError, RecursionError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise InputError(f"{source.label} is no complete dump of the flight recorder: {reason}") from None
    finally:
        if collecting:
            gc.enable()


def _decoded(data: bytes, label: str) -> _File:
    if not data.startswith(b"\x80"):
        return msgspec.json.decode(data, type=_File)
    value = load(io.BytesIO(data), label)
    # A pickle may refer to one list from everywhere. PyTorch writes each list once, so items are fewer than bytes.
    items = sum(len(entry.get(name) or ()) for entry in value.get("entries", ()) for name in _LISTS)
    if items > len(data):
        raise ValueError("its lists refer to each other")
    return msgspec.convert(value, _File)


def _dump(file: _File, source: TraceSource) -> Dump:
    rank = file.rank if file.rank is not None else source.rank_hint
    if rank is None and (match := _TRAILING_NUMBER.search(source.member or source.place)):
        rank = int(match[1])
    if rank is None or not 0 <= rank < MAX_RANKS:
        raise InputError(f"{source.label} does not say its rank; name the file after it, such as rank_3")
    entries = sorted(file.entries, key=lambda entry: entry.record_id)
    groups: dict[tuple[str, str], int] = {}
    operations: dict[Operation, int] = {}
    sites = _Sites()
    no_events = all(entry.profiling_name.startswith("gloo:") for entry in entries)
    completed = np.array([entry.state == "completed" for entry in entries], bool)
    retired = np.array([entry.retired for entry in entries], bool)
    return Dump(
        rank=rank,
        label=source.label,
        version=file.version,
        library=file.comm_lib_version or file.nccl_version,
        wrapped=bool(entries) and entries[0].record_id > 0,
        group=_column(groups.setdefault(entry.process_group, len(groups)) for entry in entries),
        operation=_column(operations.setdefault(_operation(entry), len(operations)) for entry in entries),
        site=_column(sites.of(entry.frames) for entry in entries),
        groups=[_group(file, name, description) for name, description in groups],
        operations=list(operations),
        sites=sites.all,
        sequence=_column(e.p2p_seq_id if e.is_p2p else e.collective_seq_id for e in entries),
        is_p2p=np.array([entry.is_p2p for entry in entries], bool),
        created_ns=_column(entry.time_created_ns for entry in entries),
        duration_ns=_column(round((entry.duration_ms or 0.0) * 1e6) for entry in entries),
        timeout_ns=_column((entry.timeout_ms or 0) * 1_000_000 for entry in entries),
        done=retired if no_events else completed,
        timed_out=np.zeros(len(entries), bool) if no_events else retired & ~completed,
    )


def _column(values: Iterable[int]) -> I8:
    """Raises OverflowError for numbers whose differences would not fit."""
    column = np.array(list(values), np.int64)
    if len(column) and (column.min() < -MAX_NUMBER or column.max() > MAX_NUMBER):
        raise OverflowError("a number is out of range")
    return column


def _operation(entry: _Entry) -> Operation:
    return Operation(
        (entry.profiling_name.partition(":")[2] or entry.profiling_name)[:MAX_NAME],
        entry.input_sizes,
        entry.output_sizes,
        entry.input_dtypes,
        entry.output_dtypes,
    )


def _group(file: _File, name: str, description: str) -> GroupName:
    """With one unnamed group in the file, that is the default group."""
    known = file.pg_config.get(name)
    if known is None and description == "default_pg":
        known = file.pg_config.get("")
    ranks = known.ranks if known is not None else []
    if isinstance(ranks, str):
        ranks = msgspec.json.decode(ranks, type=list[int])
    members = tuple(rank for rank in ranks if 0 <= rank < MAX_RANKS)
    return GroupName(name[:MAX_NAME], description[:MAX_NAME], members or None)


class _Sites:
    """The user's line of each stack: the innermost frame of the user's or a model's code."""

    def __init__(self) -> None:
        self.all: list[Location] = []
        self._index: dict[tuple[Any, Any, Any], int] = {}

    def of(self, frames: Sequence[Any]) -> int:
        for frame in frames:
            if not isinstance(frame, dict):
                continue
            key = (frame.get("filename"), frame.get("line"), frame.get("name"))
            index = self._index.get(key)
            if index is None:
                index = self._index[key] = self._add(*key)
            if index >= 0:
                return index
        return -1

    def _add(self, file: Any, line: Any, function: Any) -> int:
        """-1 for a frame of a library, or one that is none."""
        name = f"{file}({line}): {function}"
        site = parse_frame(name) if len(name) <= MAX_FRAME and is_place(name) else None
        if site is None:
            return -1
        self.all.append(site)
        return len(self.all) - 1
