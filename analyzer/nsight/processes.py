"""The processes of an Nsight Systems export that used a GPU: each becomes one rank."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceopt.analyzer.nsight.database import Database

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"  # CUDA graphs, recorded as a whole
COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
FILLS = "CUPTI_ACTIVITY_KIND_MEMSET"
CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
RANGES = "NVTX_EVENTS"
MOST_PROCESSES = 1_024  # of one machine
THREAD_BITS = 24  # of a `globalTid`: the rest names the process
_LATEST_NS = 2**62


class NsightProcess(Struct, frozen=True):
    """`global_pid` as in the file, None: everything in it. `place`: its number among the `count` processes that used a
    GPU, in order of their GPUs. `start_s`: when the recording began, since 1970, or None.
    """

    global_pid: int | None
    place: int
    count: int
    start_s: float | None


def is_nsight(database: Database) -> bool:
    return any(database.has(table, "start", "end") for table in (KERNELS, COPIES, CALLS, GRAPHS, RANGES))


def find_processes(database: Database) -> list[NsightProcess]:
    """In order of their GPUs; one entry for the whole file if it holds no more than one."""
    device: dict[int, int] = {}
    for table in (KERNELS, GRAPHS):
        if database.has(table, "globalPid", "deviceId"):
            used = database.numbers(table, ("globalPid", "deviceId"))
            pids, place = np.unique(used["globalPid"], return_inverse=True)
            least = np.full(len(pids), np.iinfo(np.int64).max)
            np.minimum.at(least, place.reshape(-1), used["deviceId"])
            for pid, index in zip(pids[:MOST_PROCESSES].tolist(), least.tolist(), strict=False):
                device[pid] = min(index, device.get(pid, index))
    start_s = recording_start_s(database)
    if len(device) < 2:
        return [NsightProcess(None, 0, 1, start_s)]
    ordered = sorted(device, key=lambda pid: (device[pid], pid))
    return [NsightProcess(pid, place, len(ordered), start_s) for place, pid in enumerate(ordered)]


def recording_start_s(database: Database) -> float | None:
    epoch_ns = session_start(database)[0]
    return None if epoch_ns is None else epoch_ns / 1e9


def session_start(database: Database) -> tuple[int | None, int]:
    """The start of the recording: ns since 1970 (None: not in the file), and on the clock of the events."""
    rows = database.records("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs", "systemClockNs"), (), most=1)
    epoch, clock = (rows[0]["utcEpochNs"], rows[0]["systemClockNs"]) if rows else (None, None)
    known = isinstance(epoch, int) and 0 < epoch < _LATEST_NS
    on_clock = clock if isinstance(clock, int) and 0 < clock < _LATEST_NS else 0
    return (epoch if known and isinstance(epoch, int) else None), on_clock
