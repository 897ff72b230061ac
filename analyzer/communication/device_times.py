"""The GPUs of one process: what each of them does, and for which other one it waits."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.intervals import Intervals, intersect, merge, subtract, union
from traceopt.analyzer.replay.graph import Graph
from traceopt.analyzer.replay.waits import TOLERANCE_NS
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.gpu_work import GpuWork
from traceopt.analyzer.timeline.launch_links import LaunchLinks

SMALL_WAIT = 0.1  # of all waits of a GPU


class DeviceTimes(Struct, frozen=True):
    """What one of several GPUs did, and when. The areas are exclusive and cover the window."""

    device: int
    compute: Intervals
    communication: Intervals
    copies: Intervals
    waits: dict[int, Intervals]  # by the GPU whose work comes before what this one does next, while others work
    idle: Intervals  # the rest: no GPU works, or nothing was launched here

    @property
    def waiting(self) -> Intervals:
        """When it waits for any other GPU."""
        return merge(*self.waits.values())

    @property
    def waits_for(self) -> list[int]:
        """The GPUs for which it waits, longest first. A small part of the waits is not named."""
        most = sorted(self.waits, key=lambda other: -self.waits[other].total)
        return [other for other in most if self.waits[other].total >= SMALL_WAIT * self.waiting.total]


class DeviceWaits(Struct, frozen=True, dict=True):
    """Finds what each GPU of a process does. `host_waits`: when the host waits for any GPU.

    A GPU waits for others if they work, and what it does next was launched already, or the host is held up as well.
    It waits for the one that a stream wait names, else for the one whose work ended last before.
    """

    gpu: GpuWork
    links: LaunchLinks
    graph: Graph
    host_waits: Intervals

    @property
    def times(self) -> list[DeviceTimes]:
        """The times of each GPU that worked, by number."""
        return [self._times_of(device) for device in sorted(self.gpu.devices)]

    def _times_of(self, device: int) -> DeviceTimes:
        gpu, mine = self.gpu, self.gpu.work.device == device
        compute, transfers = gpu.area(gpu.is_compute & mine), gpu.area(gpu.is_communication & mine)
        communication = subtract(transfers, compute)
        copies = subtract(gpu.area(gpu.is_copy & mine), merge(compute, transfers))
        idle = subtract(gpu.window, gpu.busy_by_device[device])
        waits = self._waits(device, idle)
        return DeviceTimes(device, compute, communication, copies, waits, subtract(idle, merge(*waits.values())))

    def _waits(self, device: int, idle: Intervals) -> dict[int, Intervals]:
        """Idle time of a GPU by the GPU that it waits for."""
        work = self.gpu.work
        own = np.flatnonzero(work.device == device)
        following = np.append(own, -1)[np.searchsorted(work.start[own], idle.end)]  # -1: nothing comes after the gap
        launched = np.where(following >= 0, self._launched[following], idle.end)
        queued = union(np.maximum(launched, idle.start), idle.end)
        others = merge(*(area for other, area in self.gpu.busy_by_device.items() if other != device))
        waiting = intersect(intersect(idle, merge(queued, self.host_waits)), others)
        before = work.device[self._before(device, following, idle.end)]
        found = {
            other: intersect(union(idle.start[before == other], idle.end[before == other]), waiting)
            for other in self.gpu.devices
            if other != device
        }
        return {other: area for other, area in found.items() if area.total}

    @cached_property
    def _launched(self) -> I8:
        """When the launch call of each row of the work returned. Without a launch in the file it was before all."""
        launch, runtime = self.links.launch, self.gpu.trace.runtime
        return np.where(launch >= 0, np.append(runtime.end, 0)[launch], 0)

    def _before(self, device: int, rows: I8, time: I8) -> I8:
        """The work of another GPU for which each row of a GPU's work waits, else the last that had ended by a time."""
        work = self.gpu.work
        others = np.flatnonzero(work.device != device)
        others = others[np.argsort(work.end[others], kind="stable")]
        last = np.searchsorted(work.end[others], time + TOLERANCE_NS, side="right") - 1
        awaited = np.where(rows >= 0, self._awaited[rows], -1)
        return np.where((awaited >= 0) & (work.device[awaited] != device), awaited, others[np.maximum(last, 0)])

    @cached_property
    def _awaited(self) -> I8:
        """The row of the work for which a stream wait holds up each row; -1: none."""
        out = np.full(len(self.gpu.work), -1)
        rows = np.flatnonzero((self.graph.work >= 0) & (self.graph.rows.awaits >= 0))
        out[self.graph.work[rows]] = self.graph.work[self.graph.rows.awaits[rows]]
        return out
