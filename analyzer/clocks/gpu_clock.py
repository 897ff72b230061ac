"""How far the clock of a GPU is ahead of the host's.

Work cannot start before its launch, and the host cannot be done waiting for work before it has ended. Both bound the
difference of the clocks. Work that finds the GPU idle starts right after its launch, and a host that waited long goes
on right after the work has ended. Both show the difference to within microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.tables.launches import calls_named, launch_rows
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.tables.trace import TimeFault, Trace
from traceopt.analyzer.vocabulary import runtime_calls

_TOLERATED_NS = 100_000  # profilers convert one clock to the other; no real trace seen is off by 60 us
_LATE_NS = 500_000  # work that finds the GPU idle never starts so late again and again
_LAUNCH_NS = 6_000  # from the start of a launch to the start of its work on an idle GPU: 2 to 16 us in real traces
_WAKE_NS = 10_000  # from the end of work to the end of a long wait for it: 4 to 35 us in real traces
_SHORT_CALL_NS = 100_000  # a launch that takes longer also loads the kernel, or waits for room in the queue
_IDLE_NS = 20_000  # before work that finds the GPU idle
_LONG_WAIT_NS = 200_000  # a sync that takes so long waits for work
_ALIKE_NS = 10_000  # the shortest distances of launches to an idle GPU are as similar
_ALIKE = 3  # such distances
_PIECES = 4  # of the recording; a clock that drifts differs between them
_PIECE = 5  # distances at least
_UNKNOWN = np.iinfo(np.int64).min // 2  # time of a launch that is not in the file
_ODD_SHARE = 0.001  # of the work: so little that starts before its launch has a wrong time or launch itself


class _Waits(Struct, frozen=True):
    """Waits of the host for all work of the device, ns."""

    start: I8
    end: I8

    @property
    def long(self) -> _Waits:
        """Those that surely waited, so that they ended right after the work."""
        kept = self.end - self.start >= _LONG_WAIT_NS
        return _Waits(self.start[kept], self.end[kept])


_NONE = _Waits(np.empty(0, np.int64), np.empty(0, np.int64))


class _Work(Struct, frozen=True, dict=True):
    """The work of one GPU in order of start; arrays of equal length, ns."""

    device: int
    start: I8
    end: I8
    before: I8  # when all work before it had ended, on any GPU
    launched: I8  # _UNKNOWN: the launch is not in the file
    at_once: Mask  # whether the launch is a short call for this work alone: a long graph is sent first
    waits: _Waits

    def moved(self, ahead: I8) -> _Work:
        """On a clock that is not ahead by that."""
        times = {name: getattr(self, name) - ahead for name in ("start", "end", "before")}
        return replace(self, **times)

    @cached_property
    def distance(self) -> I8:
        """From launches to the start of their work."""
        known = self.launched != _UNKNOWN
        return np.asarray(self.start[known] - self.launched[known])

    @cached_property
    def bounds(self) -> _Bounds:
        odd = int(_ODD_SHARE * len(self.distance))
        shown = list(self._shortest())
        return _Bounds(
            most=int(np.partition(self.distance, odd)[odd]),
            least=self._most_late(self.waits.long),
            likely_least=self._most_late(self.waits),
            at=[start for start, _ in shown],
            seen=[distance - _LAUNCH_NS for _, distance in shown],
        )

    def _shortest(self) -> Iterator[tuple[int, int]]:
        """When work that finds all GPUs idle starts, and its shortest distance from its launch, in each piece of the
        recording where several are alike.
        """
        rows = self.at_once & (self.start - self.before >= _IDLE_NS)
        start, distance = self.start[rows], self.start[rows] - self.launched[rows]
        for piece in np.array_split(np.arange(len(start)), max(1, min(_PIECES, len(start) // _PIECE))):
            least = piece[np.argsort(distance[piece], kind="stable")[:_ALIKE]]
            if len(least) == _ALIKE and distance[least[-1]] - distance[least[0]] <= _ALIKE_NS:
                yield int(start[least[0]]), int(distance[least[0]])

    def _most_late(self, waits: _Waits) -> int:
        """How long work goes on after a wait for it has ended, at most; negative if it ends earlier, _UNKNOWN if
        nothing waits.
        """
        if not len(waits.start):
            return _UNKNOWN
        known = self.launched != _UNKNOWN
        order = np.argsort(self.launched[known], kind="stable")
        last = np.maximum.accumulate(self.end[known][order])
        issued = np.searchsorted(self.launched[known][order], waits.start)
        late = last[issued[issued > 0] - 1] - waits.end[issued > 0]
        return int(late.max(initial=_UNKNOWN))


class _Bounds(Struct, frozen=True):
    """Bounds of how far the clock is ahead, ns, and what shows it exactly: how far it is ahead (`seen`) at some times
    (`at`), one for each piece of the recording. A short wait may be for another GPU, so its bound is only likely.
    """

    most: int
    least: int
    likely_least: int
    at: list[int]
    seen: list[int]

    @property
    def is_off(self) -> bool:
        confirmed = len(self.seen) > 1 or self.likely_least > _TOLERATED_NS
        late = confirmed and min(self.seen, default=self.most) > _LATE_NS
        return self.most < -_TOLERATED_NS or self.least > _TOLERATED_NS or late or self.drifts

    @property
    def drifts(self) -> bool:
        return len(self.seen) > 1 and max(self.seen) - min(self.seen) > _TOLERATED_NS

    def ahead(self, time: I8) -> I8 | None:
        """How far it is ahead at each time: a straight line. None if nothing shows it."""
        if self.drifts:
            line = np.polyfit(self.at, self.seen, 1)
            bent = np.abs(np.polyval(line, self.at) - self.seen).max() > _TOLERATED_NS / 2
            return None if bent or len(self.seen) == 2 else np.rint(np.polyval(line, time)).astype(np.int64)
        known = self.seen or [self.least + _WAKE_NS] * (self.least > _UNKNOWN)
        return np.full(len(time), round(median(known))) if known else None


def on_the_host_clock(trace: Trace) -> tuple[Trace, list[TimeFault]]:
    """The trace with the work of each GPU in times of the host's clock."""
    gpu, start = trace.gpu, trace.gpu.start.copy()
    faults: list[TimeFault] = []
    for rows, work in _devices(trace):
        bounds = work.bounds
        if not bounds.is_off:
            continue
        ahead = bounds.ahead(work.start)
        mended = ahead is not None and not work.moved(ahead).bounds.is_off
        amount = float(bounds.most)
        if ahead is not None and mended:
            start[rows] -= ahead
            amount = float(ahead[np.abs(ahead).argmax()])
        kind: Literal["clock", "drift"] = "clock" if mended and not bounds.drifts else "drift"
        early = int((work.distance < 0).sum())
        faults.append(TimeFault(kind, mended, early, len(work.distance), amount, work.device))
    if not faults:
        return trace, []
    return replace(trace, gpu=replace(gpu, start=start).take(np.argsort(start, kind="stable"))), faults


def _devices(trace: Trace) -> Iterator[tuple[npt.NDArray[np.intp], _Work]]:
    """The rows of the work of each GPU, where launches are known."""
    gpu, runtime = trace.gpu, trace.runtime
    launch = launch_rows(gpu.correlation, runtime)
    known = launch >= 0
    if not known.any():
        return
    before = np.append(_UNKNOWN, np.maximum.accumulate(gpu.end))[:-1]
    launched = np.where(known, runtime.start[launch], _UNKNOWN)
    short = (runtime.duration <= _SHORT_CALL_NS) & ~calls_named(trace, runtime_calls.is_graph_launch)
    at_once = known & short[launch]
    devices = distinct_values(gpu.device[known]).tolist()
    waits = _waits_for_all(trace) if len(devices) == 1 else _NONE
    for device in devices:
        rows = np.flatnonzero(gpu.device == device)
        times = gpu.start[rows], gpu.end_of(rows), before[rows], launched[rows]
        yield rows, _Work(device, *times, at_once[rows], waits)


def _waits_for_all(trace: Trace) -> _Waits:
    """Waits for all work of the device: for the device, or for the only stream that has any."""
    runtime = trace.runtime
    one_stream = len(distinct_values(np.append(trace.gpu.queue, trace.sync.queue))) == 1
    for_all = calls_named(trace, runtime_calls.is_device_sync)
    if one_stream:
        for_all |= calls_named(trace, runtime_calls.is_stream_sync)
    rows = np.flatnonzero(for_all)
    return _Waits(runtime.start[rows], runtime.end_of(rows))
