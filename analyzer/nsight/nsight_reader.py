"""Reads one process of an Nsight Systems export into the tables of a trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.arrays.codes import Codes
from traceopt.analyzer.nsight.database import Database
from traceopt.analyzer.nsight.devices import device_properties
from traceopt.analyzer.nsight.event_tables import EventTables
from traceopt.analyzer.nsight.gpu_metrics import read_metrics
from traceopt.analyzer.nsight.os_waits import waits_of_launching_threads
from traceopt.analyzer.nsight.processes import (
    CALLS,
    COPIES,
    FILLS,
    GRAPHS,
    KERNELS,
    RANGES,
    THREAD_BITS,
    NsightProcess,
    session_start,
)
from traceopt.analyzer.nsight.range_meanings import RangeMeanings
from traceopt.analyzer.nsight.ranges import call_name, kernel_name
from traceopt.analyzer.tables.schema import (
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
)
from traceopt.analyzer.tables.trace import Thread, Trace, TraceMeta
from traceopt.analyzer.vocabulary.copy_labels import copy_label
from traceopt.analyzer.vocabulary.event_categories import HARDWARE_COUNTERS
from traceopt.analyzer.vocabulary.os_calls import is_os_wait
from traceopt.errors import InputError

SYNCS = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
CUDA_EVENTS = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
OS_CALLS = "OSRT_API"
_SPANS = (59, 60, 70, 71)  # NVTX: push to pop, start to end, and the same of NVTX text files
_WORDS = ("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static", "Unknown")
_LAUNCHED = ("registersPerThread", "staticSharedMemory", "dynamicSharedMemory")  # columns of kernels
_UNIFIED = {11: "HtoD", 12: "DtoH", 13: "DtoD"}  # copies of unified memory
_SYNC_NAMES = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
_OPERATOR_NUMBER = b", op_id = "
_GRAPH_NAME = "CUDA graph (recorded as a whole)"
_MOST_UNNAMED = 0.01  # of the kernels, calls and ranges: if the names of more are missing, none can be told apart


class _Reader:
    def __init__(self, database: Database, process: NsightProcess) -> None:
        self._database = database
        self._process = process
        self._names, self._texts = Codes[str](), Codes[str]()
        self.categories: dict[str, int] = {}
        self.tables = EventTables()
        self.named = self.unnamed = 0  # rows whose names the file holds, and those whose names it lacks
        self._global_threads: dict[int, int] = {}
        self._meanings = RangeMeanings(database, self._names, self._texts)

    def read(self) -> None:
        self._gpu()
        self._calls()
        self._ranges()
        self._syncs()
        if rows := self._database.count(CUDA_EVENTS):
            self.categories[CUDA_EVENTS] = rows

    def _of_process(self, table: str) -> dict[str, tuple[int, int]]:
        """The bounds that select the rows of the process."""
        pid = self._process.global_pid
        if pid is not None and self._database.has(table, "globalPid"):
            return {"globalPid": (pid, pid)}
        if pid is not None and self._database.has(table, "globalTid"):
            return {"globalTid": (pid, pid + (1 << THREAD_BITS) - 1)}
        return {}

    def _numbers(self, table: str, *columns: str) -> dict[str, I8]:
        """Columns of the rows with a valid time; `end` is replaced by `duration`."""
        if not self._database.has(table, "start", "end"):
            return {}
        found = self._database.numbers(table, ("start", "end", *columns), self._of_process(table))
        start, end = found["start"], found.pop("end")
        valid = self.tables.are_valid(start, end)
        found["duration"] = end - start
        return found if valid.all() else {name: values[valid] for name, values in found.items()}

    def _named(self, ids: I8, spelled: Any = None) -> npt.NDArray[np.int32]:
        """Codes of names that the rows give as ids of `StringIds`."""
        distinct = np.unique(ids)
        strings = self._database.strings(distinct.tolist())
        named = int(np.isin(ids, np.array(list(strings), np.int64)).sum())
        self.named, self.unnamed = self.named + named, self.unnamed + len(ids) - named
        texts = [strings.get(one, "(not recorded)") for one in distinct.tolist()]
        codes = self._names.encode([spelled(text) if spelled else text for text in texts], len(texts))
        return codes[np.searchsorted(distinct, ids)]

    def _gpu(self) -> None:
        of_work = ("deviceId", "streamId", "correlationId", "graphNodeId")
        sides = ("gridX", "gridY", "gridZ"), ("blockX", "blockY", "blockZ")
        parts: list[dict[str, Any]] = []
        found = self._numbers(KERNELS, *of_work, "demangledName", "shortName", *sides[0], *sides[1], *_LAUNCHED)
        if found:
            name = np.where(found["demangledName"] >= 0, found["demangledName"], found["shortName"])
            grid, block = (np.stack([found[side] for side in three], 1) for three in sides)
            launched = {"registers": found["registersPerThread"], "shared_memory": _shared(found)}
            parts.append(self._work(found, KERNEL, self._named(name, kernel_name), grid=grid, block=block, **launched))
        if found := self._numbers(GRAPHS, *of_work):
            parts.append(self._work(found, KERNEL, self._names.of(_GRAPH_NAME)))
        if found := self._numbers(COPIES, *of_work, "bytes", "copyKind", "srcKind", "dstKind"):
            kinds = np.stack([found[column] for column in ("copyKind", "srcKind", "dstKind")], 1)
            distinct, inverse = np.unique(kinds, axis=0, return_inverse=True)
            codes = np.array([self._names.of(_copy_name(*kind)) for kind in distinct.tolist()], np.int32)
            parts.append(self._work(found, MEMCPY, codes[inverse.reshape(-1)]))
        if found := self._numbers(FILLS, *of_work, "bytes", "memKind"):
            distinct, inverse = np.unique(found["memKind"], return_inverse=True)
            names = [copy_label("Memset", None, None, None, _memory(kind)) for kind in distinct.tolist()]
            codes = np.array([self._names.of(name) for name in names], np.int32)
            parts.append(self._work(found, MEMSET, codes[inverse]))
        kinds_of = {KERNEL: "kernel", MEMCPY: "gpu_memcpy", MEMSET: "gpu_memset"}
        for part in parts:
            if len(part["start"]):
                category = kinds_of[part["kind"]]
                self.categories[category] = self.categories.get(category, 0) + len(part["start"])
        self.tables.put("gpu", GpuTable, parts)

    def _work(self, found: dict[str, I8], kind: int, name: Any, **more: Any) -> dict[str, Any]:
        return {
            "start": found["start"],
            "duration": found["duration"],
            "name": name,
            "kind": kind,
            "device": found["deviceId"],
            "stream": found["streamId"],
            "correlation": found["correlationId"],
            "graph_node": found["graphNodeId"],
            "bytes": found.get("bytes", -1),
            **more,
        }

    def _calls(self) -> None:
        found = self._numbers(CALLS, "globalTid", "correlationId", "nameId")
        if not found:
            return
        columns = {
            "start": found["start"],
            "duration": found["duration"],
            "name": self._named(found["nameId"], call_name),
            "thread": self._threads(found["globalTid"]),
            "correlation": found["correlationId"],
        }
        parts = [columns, *self._os_waits(found)]
        self.categories["cuda_runtime"] = sum(len(part["start"]) for part in parts)
        self.tables.put("runtime", RuntimeTable, parts)

    def _os_waits(self, cuda: dict[str, I8]) -> list[dict[str, Any]]:
        """Long waits in the operating system, as further calls."""
        found = self._numbers(OS_CALLS, "globalTid", "nameId")
        if not found:
            return []
        ids = np.unique(found["nameId"])
        waits = [key for key, text in self._database.strings(ids.tolist()).items() if is_os_wait(text)]
        rows = waits_of_launching_threads(found, cuda, waits)
        start = found["start"]
        if len(rows) < len(start):
            self.categories[OS_CALLS] = len(start) - len(rows)
        return [
            {
                "start": start[rows],
                "duration": found["duration"][rows],
                "name": self._named(found["nameId"][rows]),
                "thread": self._threads(found["globalTid"][rows]),
            }
        ]

    def _ranges(self) -> None:
        """The ranges, their texts read in the order of the table, a piece at a time."""
        database = self._database
        if not database.has(RANGES, "start", "end", "eventType"):
            return
        columns = ("start", "end", "globalTid", "textId", "eventType")
        operators: list[dict[str, Any]] = []
        annotations: list[dict[str, Any]] = []
        of_process = self._of_process(RANGES)
        for piece, texts in database.numbers_and_text(RANGES, columns, "text", _OPERATOR_NUMBER, of_process):
            rows = np.flatnonzero(np.isin(piece[4], _SPANS) & (piece[1] != -1))
            start, end, threads, registered = piece[:4, rows]
            name, is_operator, dims, sequence = self._meanings.of(texts, texts.index[rows], registered).T
            valid = self.tables.are_valid(start, end)
            thread = self._threads(threads)
            for kept, parts in ((is_operator == 1, operators), (is_operator == 0, annotations)):
                of = np.flatnonzero(kept & valid)
                span = {"start": start[of], "duration": end[of] - start[of], "name": name[of], "thread": thread[of]}
                parts.append({**span, "dims": dims[of], "sequence": sequence[of]})
        for attribute, table, parts, category in (
            ("ops", OpTable, operators, "cpu_op"),
            ("annotations", AnnotationTable, annotations, "user_annotation"),
        ):
            if rows_found := sum(len(part["start"]) for part in parts):
                self.categories[category] = rows_found
            self.tables.put(attribute, table, parts)

    def _syncs(self) -> None:
        found = self._numbers(SYNCS, "deviceId", "streamId", "correlationId", "syncType", "eventId", "eventSyncId")
        if not found:
            return
        names = {kind: self._names.of(name) for kind, name in _SYNC_NAMES.items()}
        distinct, inverse = np.unique(found["syncType"], return_inverse=True)
        known = np.array([kind in names for kind in distinct.tolist()], bool)[inverse]
        codes = np.array([names.get(kind, -1) for kind in distinct.tolist()], np.int32)[inverse]
        stream, record = self._recorded_events(found["eventSyncId"])
        columns: dict[str, Any] = {
            "start": found["start"],
            "duration": found["duration"],
            "name": codes,
            "device": found["deviceId"],
            "stream": found["streamId"],
            "correlation": found["correlationId"],
            "awaited_stream": stream,
            "event_record": record,
        }
        self.tables.put("sync", SyncTable, [{name: values[known] for name, values in columns.items()}])
        self.categories["cuda_sync"] = int(known.sum())

    def _recorded_events(self, sync_ids: I8) -> tuple[I8, I8]:
        """The stream on which each awaited event was recorded, and the correlation id of that call; -1: unknown."""
        nothing = np.full(len(sync_ids), -1, np.int64)
        if not self._database.has(CUDA_EVENTS, "eventSyncId", "streamId", "correlationId"):
            return nothing, nothing
        columns = ("eventSyncId", "streamId", "correlationId")
        events = self._database.numbers(CUDA_EVENTS, columns, self._of_process(CUDA_EVENTS))
        ids, first = np.unique(events["eventSyncId"], return_index=True)
        if not len(ids):
            return nothing, nothing
        at = np.minimum(np.searchsorted(ids, sync_ids), len(ids) - 1)
        hit = (ids[at] == sync_ids) & (sync_ids > 0)
        row = first[at]
        return np.where(hit, events["streamId"][row], -1), np.where(hit, events["correlationId"][row], -1)

    def _threads(self, global_ids: I8) -> npt.NDArray[np.int32]:
        distinct, inverse = np.unique(global_ids, return_inverse=True)
        codes = [self._global_threads.setdefault(one, len(self._global_threads)) for one in distinct.tolist()]
        return np.array(codes, np.int32)[inverse.reshape(-1)]

    def threads(self) -> list[Thread]:
        rows = self._database.records("ThreadNames", ("globalTid", "nameId"), ())
        ids = {row["globalTid"]: row["nameId"] for row in rows if row["globalTid"] in self._global_threads}
        strings = self._database.strings(sorted({one for one in ids.values() if isinstance(one, int)}))
        mask = (1 << THREAD_BITS) - 1
        return [
            Thread(
                (thread >> THREAD_BITS) & mask, thread & mask, strings.get(name, "") if isinstance(name, int) else ""
            )
            for thread in self._global_threads
            for name in (ids.get(thread),)
        ]

    def code_of(self, name: str) -> int:
        return self._names.of(name)

    def names(self) -> list[str]:
        return self._names.values()

    def texts(self) -> list[str]:
        return self._texts.values()


def _shared(found: dict[str, I8]) -> I8:
    """Shared memory of a block, static and dynamic, in bytes; -1: not recorded."""
    static, dynamic = found["staticSharedMemory"], found["dynamicSharedMemory"]
    return np.where((static >= 0) & (dynamic >= 0), static + dynamic, -1)


def _memory(kind: int) -> str:
    return _WORDS[kind] if 0 <= kind < len(_WORDS) else "Unknown"


def _copy_name(direction: int, source: int, target: int) -> str:
    if direction in _UNIFIED:
        return f"Memcpy {_UNIFIED[direction]} (Unified)"
    ends = [_memory(kind) if kind >= 0 else None for kind in (source, target)]
    return copy_label("Memcpy", float(direction), *ends, None)


def read_process(
    database: Database,
    process: NsightProcess,
    *,
    path: str,
    rank: int | None,
    world_size: int | None,
    byte_count: int,
    sha256: str | None,
) -> Trace:
    """The trace of one process. Raises InputError if it has no events, or no names for them."""
    reader = _Reader(database, process)
    reader.read()
    tables, origin = reader.tables.finish()
    if not sum(len(table) for table in tables.values()):
        raise InputError(f"{path} has no events of CUDA or NVTX. Record with nsys profile --trace=cuda,nvtx,osrt.")
    if reader.unnamed > _MOST_UNNAMED * (reader.named + reader.unnamed):
        raise InputError(
            f"{path} lacks the names of {reader.unnamed:,} of its {reader.named + reader.unnamed:,} kernels, calls and "
            "ranges (table StringIds). Export the report again with nsys export --type sqlite."
        )
    duration_ns = max(int(table.end.max()) for table in tables.values() if len(table))
    counters = read_metrics(database, process, origin, duration_ns, reader.code_of)
    if len(counters):
        reader.categories[HARDWARE_COUNTERS] = len(counters)
    epoch_ns, clock_ns = session_start(database)
    empty: dict[str, Any] = {
        "gpu": GpuTable,
        "runtime": RuntimeTable,
        "ops": OpTable,
        "annotations": AnnotationTable,
        "python": PythonTable,
        "sync": SyncTable,
        "memory": MemoryTable,
        "flows": FlowTable,
    }
    return Trace(
        meta=TraceMeta(
            path=path,
            header=_header(database, process),
            rank=rank,
            world_size=world_size,
            event_count=sum(reader.categories.values()),
            byte_count=byte_count,
            sha256=sha256,
            lost_events=reader.tables.lost + reader.unnamed,
            repaired_events=0,
            unread_bytes=0,
            damage=None,
            recorded_index_share=None,
            categories=reader.categories,
            start_ns=None if epoch_ns is None else epoch_ns + origin - clock_ns,
        ),
        names=reader.names(),
        texts=reader.texts(),
        threads=reader.threads(),
        counters=counters,
        **{name: tables[name] if name in tables else table.empty() for name, table in empty.items()},
    )


def _header(database: Database, process: NsightProcess) -> dict[str, Any]:
    about = {
        str(row["name"]): str(row["value"] or "")[:100]
        for row in database.records("META_DATA_EXPORT", (), ("name", "value"), most=1_000)
    }
    return {
        "nsight": {
            "version": about.get("EXPORT_PRODUCT_VERSION", ""),
            "schema": about.get("EXPORT_SCHEMA_VERSION", ""),
            "process": process.place,
            "processes": process.count,
        },
        "deviceProperties": device_properties(database, process),
    }
