"""The ids that a launch shares with its work, in files whose writer knows no "correlation"."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from traceopt.analyzer.tables.schema import I8, ArrowTable, GpuTable, Mask, RuntimeTable, Spans, SyncTable
from traceopt.analyzer.vocabulary import runtime_calls

NO_ID = -1
Threads = list[tuple[int, int]]  # process and thread id of each
T = TypeVar("T", RuntimeTable, GpuTable, SyncTable)


def of_operator(external: float) -> float:
    """An "External id" as it is kept where an event has no correlation id: below `NO_ID`, apart from those."""
    return NO_ID - 1 - external if external >= 0 else NO_ID


def with_launch_ids(
    runtime: RuntimeTable, gpu: GpuTable, sync: SyncTable, arrows: ArrowTable, threads: Threads, names: list[str]
) -> tuple[RuntimeTable, GpuTable, SyncTable]:
    """The tables with ids that join launches to work.

    Without correlation ids, arrows (flows "ac2g") lead from the calls to their work, or both have the same "External
    id", as ROCm's older profiler (roctracer) writes them. What joins more of the work counts, the arrows if both do.
    """
    if any((table.correlation > 0).any() for table in (runtime, gpu)):
        return _correlated(runtime), _correlated(gpu), _correlated(sync)
    externals = NO_ID - 1 - sync.correlation
    found = [_at_arrows(runtime, gpu, arrows, threads), _of_operators(runtime, gpu, names)]
    calls, work = max(found, key=lambda ids: np.isin(ids[1][ids[1] > 0], ids[0]).sum())
    return replace(runtime, correlation=calls), replace(gpu, correlation=work), replace(sync, correlation=externals)


def _correlated(table: T) -> T:
    """The table without External ids."""
    ids = table.correlation
    return replace(table, correlation=np.maximum(ids, NO_ID)) if (ids < NO_ID).any() else table


def _at_arrows(runtime: RuntimeTable, gpu: GpuTable, arrows: ArrowTable, threads: Threads) -> tuple[I8, I8]:
    """The ids of the arrows at each call and at each piece of work."""
    calls, work = np.full(len(runtime), NO_ID), np.full(len(gpu), NO_ID)
    if len(arrows):
        for thread, (pid, tid) in enumerate(threads):
            _mark(calls, runtime, runtime.thread == thread, arrows, pid, tid)
        for device, stream in set(zip(gpu.device.tolist(), gpu.stream.tolist(), strict=True)):
            _mark(work, gpu, (gpu.device == device) & (gpu.stream == stream), arrows, device, stream)
    return calls, work


def _mark(ids: I8, table: Spans, rows: Mask, arrows: ArrowTable, pid: int, tid: int) -> None:
    """Gives rows of one thread or stream the ids of the arrows that begin or end inside them."""
    here = np.flatnonzero((arrows.pid == pid) & (arrows.tid == tid))
    own = np.flatnonzero(rows)
    if not len(here) or not len(own):
        return
    time = arrows.time[here]
    at = own[np.searchsorted(table.start[own], time, side="right") - 1]
    inside = (table.start[at] <= time) & (time <= table.end_of(at))
    ids[at[inside]] = arrows.id[here[inside]]


def _of_operators(runtime: RuntimeTable, gpu: GpuTable, names: list[str]) -> tuple[I8, I8]:
    """The External ids of calls and work. PyTorch's are those of operators, whose launches may share one: then the
    first has launched the first work of the id, and so on, and the last one all that is left.
    """
    calls, work = NO_ID - 1 - runtime.correlation, NO_ID - 1 - gpu.correlation
    launching = np.array([runtime_calls.is_launch(name) for name in names] or [False])[runtime.name]
    launches = np.flatnonzero(launching & (calls > 0))
    launches = launches[np.argsort(calls[launches], kind="stable")]
    again = np.append(False, calls[launches[1:]] == calls[launches[:-1]])
    nested = again & np.append(False, runtime.start[launches[1:]] < runtime.end_of(launches[:-1]))
    if not (again & ~nested).any():
        return calls, work
    launches = launches[~nested]
    known, first, count = np.unique(calls[launches], return_index=True, return_counts=True)
    rows = np.flatnonzero(np.isin(work, known))
    rows = rows[np.argsort(work[rows], kind="stable")]
    of_id, first_row, group = np.unique(work[rows], return_index=True, return_inverse=True)
    at = np.searchsorted(known, of_id)[group]
    launch = first[at] + np.minimum(np.arange(len(rows)) - first_row[group], count[at] - 1)
    calls, work = np.full(len(runtime), NO_ID), np.full(len(gpu), NO_ID)
    calls[launches] = np.arange(1, len(launches) + 1)
    work[rows] = launch + 1
    return calls, work
