"""Splits a replayed step into busy parts of the device and causes of its idle time, as in the breakdown."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.intervals import Intervals, intersect, merge, subtract, union
from traceopt.analyzer.replay.changes import host_removals
from traceopt.analyzer.replay.replayed import Replayed
from traceopt.analyzer.tables.schema import Mask
from traceopt.analyzer.timeline.gpu_work import GpuWork
from traceopt.analyzer.vocabulary.causes.cause import Cause
from traceopt.analyzer.vocabulary.causes.table import (
    COMMUNICATION,
    COMPUTE,
    COPIES,
    GRAPH_CALLBACK,
    HOST_SYNC,
    QUEUED,
    UNTRACED,
)


class ReplayedParts(Struct, frozen=True):
    """Splits replays of one trace. `areas`: what the host did when the steps were recorded. `gpu`: None in a CPU-only
    run. `called`: the share of the idle time with work queued in which a CPU callback of a graph ran.
    """

    areas: Mapping[Cause, Intervals]
    gpu: GpuWork | None
    called: float = 0.0

    def of(self, replayed: Replayed) -> dict[Cause, float]:
        """Exclusive parts, ns of the typical step. They sum to the step."""
        complete, settled = replayed.timing.complete, replayed.graph.settled
        window = union(complete[settled], complete[settled + 1])
        spent = _host_time(self.areas, replayed)
        if self.gpu is not None:
            parts, starved, queued = _device_parts(self.gpu, replayed, window)
            parts |= _starved_parts(self.gpu, self.areas, replayed, spent, starved)
            parts |= {QUEUED: queued * (1 - self.called), GRAPH_CALLBACK: queued * self.called}
        else:
            step = np.searchsorted(replayed.graph.borders, np.arange(len(replayed.rows))) - 1
            counts = np.isin(step, settled)
            parts = {cause: float(amount[counts].sum()) for cause, amount in spent.items()}
        return {cause: ns / len(settled) for cause, ns in parts.items()}


def _device_parts(gpu: GpuWork, replayed: Replayed, window: Intervals) -> tuple[dict[Cause, float], Intervals, int]:
    """Busy parts, when the device starved, and for how long it was idle although work was queued."""
    graph = replayed.graph
    rows = np.flatnonzero(graph.work >= 0)
    end = replayed.timing.end[rows]
    start = end - replayed.rows.duration[rows]

    def area(mask: Mask) -> Intervals:
        mine = mask[graph.work[rows]]
        return intersect(union(start[mine], end[mine]), window)

    compute, communication, copies = area(gpu.is_compute), area(gpu.is_communication), area(gpu.is_copy)
    busy = merge(compute, communication, copies)
    idle = subtract(window, busy)
    order = np.argsort(start, kind="stable")
    following = np.searchsorted(start[order], idle.end, side="left")
    issued = (replayed.timing.clock + np.maximum(replayed.rows.latency, 0))[rows[order]]
    starved = union(idle.start, np.clip(np.append(issued, window.end[-1])[following], idle.start, idle.end))
    parts = {
        COMPUTE: float(compute.total),
        COMMUNICATION: float(subtract(communication, compute).total),
        COPIES: float(subtract(copies, merge(compute, communication)).total),
    }
    return parts, starved, idle.total - starved.total


def _host_time(areas: Mapping[Cause, Intervals], replayed: Replayed) -> dict[Cause, npt.NDArray[np.float64]]:
    """Remaining host time before each row by cause, ns; they sum to `rows.host`."""
    graph = replayed.graph
    begin, end = graph.host_start, graph.host_end
    removals = host_removals(graph, replayed.changes)
    none = np.zeros(len(begin))
    none.flags.writeable = False
    spent = dict.fromkeys((*areas, UNTRACED), none)
    for cause, area in areas.items():
        if not len(area):
            continue
        amount = area.within(begin, end).astype(np.float64)
        for removal in removals:
            if len(both := intersect(area, removal.area)):
                amount -= removal.share * both.within(begin, end)
        spent[cause] = np.maximum(amount, 0, out=amount)
    traced, removed = np.zeros(len(begin)), np.zeros(len(begin))
    for amount in spent.values():
        traced += amount
    for removal in removals:
        removed += removal.share * removal.area.within(begin, end)
    left = graph.rows.host - removed
    left -= traced
    spent[UNTRACED] = spent[UNTRACED] + np.maximum(left, 0, out=left)
    total = np.add(traced, left, out=traced)
    scale = np.divide(replayed.rows.host, total, out=np.zeros(len(begin)), where=total > 0)
    for amount in spent.values():
        if amount is not none:
            amount *= scale
    return spent


def _starved_parts(
    gpu: GpuWork,
    areas: Mapping[Cause, Intervals],
    replayed: Replayed,
    spent: dict[Cause, npt.NDArray[np.float64]],
    starved: Intervals,
) -> dict[Cause, float]:
    """What the host did while the device starved, by cause. A wait counts for the activity that waits (an allocation
    waits for the device as well), else as a sync.
    """
    clock, host = replayed.timing.clock, replayed.rows.host
    begin = np.append(clock[:1] - host[:1], clock[:-1])
    working = starved.within(begin, begin + host)
    share = np.divide(working, host, out=np.zeros(len(host)), where=host > 0)
    parts = {cause: float((amount * share).sum()) for cause, amount in spent.items()}
    waited = starved.within(begin + host, clock)
    waits = np.flatnonzero((waited > 0) & (replayed.graph.call >= 0))
    calls = gpu.trace.runtime.take(replayed.graph.call[waits])
    for cause, area in areas.items():
        if cause is not HOST_SYNC and len(area):
            mine = area.contains(calls.start)
            parts[cause] += float(waited[waits[mine]].sum())
            waited[waits[mine]] = 0
    parts[HOST_SYNC] += float(waited.sum())
    parts[UNTRACED] += max(0.0, starved.total - sum(parts.values()))
    return parts
