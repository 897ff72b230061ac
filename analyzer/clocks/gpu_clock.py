"""How far the clock of a GPU is ahead of the host's.

Work cannot start before its launch, and the host cannot be done waiting for work before it has ended. Both bound the
difference of the clocks. Work that finds the GPU idle starts right after its launch, and a host that waited long goes
on right after the work has ended. Both show the difference to within microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.tables.launches import launch_rows
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.tables.time_faults import TimeFault
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.vocabulary import runtime_calls

_TOLERATED_NS = 100_000  # profilers convert one clock to the other; no real trace seen is off by 60 us
_LATE_NS = 500_000  # work that finds the GPU idle never starts so late again and again
_LAUNCH_NS = 6_000  # from the start of a launch to the start of its work on an idle GPU: 2 to 16 us in real traces
_WAKE_NS = 10_000  # from the end of work to the end of a long wait for it: 4 to 35 us in real traces
_IDLE_NS = 20_000  # before work that finds the GPU idle
_LONG_WAIT_NS = 200_000  # a sync that takes so long waits for work
_ALIKE_NS = 10_000  # the shortest distances of launches to an idle GPU are as similar
_ALIKE = 3  # such distances
_PIECES = 4  # of the recording; a clock that drifts differs between them
_PIECE = 5  # distances at least
_UNKNOWN = np.iinfo(np.int64).min // 2  # time of a launch that is not in the file
_ODD_SHARE = 0.001  # of the work: so little that starts before its launch has a wrong time or launch itself


class _Periods(Struct, frozen=True):
    """Periods that may overlap; columns of equal length, ns."""

    start: I8
    end: I8


_NONE = _Periods(np.empty(0, np.int64), np.empty(0, np.int64))


class _Bounds(Struct, frozen=True):
    """Bounds of how far the clock is ahead, ns, and what shows it exactly: `seen`, one value per piece of the
    recording.
    """

    most: int
    least: int
    seen: list[int]

    @property
    def is_off(self) -> bool:
        late = len(self.seen) > 1 and min(self.seen) > _LATE_NS
        return self.most < -_TOLERATED_NS or self.least > _TOLERATED_NS or late

    @property
    def ahead(self) -> float | None:
        """How far it is ahead; None if that is not certain, or not constant."""
        known = self.seen or ([self.least + _WAKE_NS] if self.least > _UNKNOWN else [])
        if not known or max(known) - min(known) > _TOLERATED_NS:
            return None
        ahead = median(known)
        return ahead if self.least - _TOLERATED_NS <= ahead <= self.most + _TOLERATED_NS else None


def on_the_host_clock(trace: Trace) -> tuple[Trace, list[TimeFault]]:
    """The trace with the work of each GPU in times of the host's clock."""
    gpu, runtime = trace.gpu, trace.runtime
    launch = launch_rows(gpu.correlation, runtime)
    devices = distinct_values(gpu.device[launch >= 0])
    waits = _long_waits(trace) if len(devices) == 1 else _NONE
    before = np.append(_UNKNOWN, np.maximum.accumulate(gpu.end))[:-1]  # a GPU may wait for the work of another one
    faults, start = [], gpu.start
    for device in devices.tolist():
        rows = np.flatnonzero(gpu.device == device)
        work = _Periods(gpu.start[rows], gpu.end_of(rows))
        launched = np.where(launch[rows] >= 0, runtime.start[np.maximum(launch[rows], 0)], _UNKNOWN)
        bounds = _bounds(work, before[rows], launched, waits)
        if not bounds.is_off:
            continue
        ahead, distance = bounds.ahead, (work.start - launched)[launched != _UNKNOWN]
        early = int((distance < 0).sum())
        amount = bounds.most if ahead is None else ahead
        faults.append(TimeFault("clock", ahead is not None, early, len(distance), amount, device))
        if ahead is not None:
            start = np.where(gpu.device == device, start - round(ahead), start)
    if start is gpu.start:
        return trace, faults
    order = np.argsort(start, kind="stable")
    return replace(trace, gpu=replace(gpu, start=start).take(order)), faults


def _bounds(work: _Periods, before: I8, launched: I8, waits: _Periods) -> _Bounds:
    """Of one GPU: `work`, when all work before it had ended, and when it was launched, in order of start."""
    known = launched != _UNKNOWN
    distance = work.start[known] - launched[known]
    odd = int(_ODD_SHARE * len(distance))
    return _Bounds(
        most=int(np.partition(distance, odd)[odd]),
        least=_most_late(launched[known], work.end[known], waits),
        seen=[shortest - _LAUNCH_NS for shortest in _shortest(work, before, launched)],
    )


def _shortest(work: _Periods, before: I8, launched: I8) -> Iterator[int]:
    """The shortest distance from a launch to work that finds all GPUs idle, in each piece of the recording where
    several are alike.
    """
    rows = (launched != _UNKNOWN) & (work.start - before >= _IDLE_NS)
    distance = work.start[rows] - launched[rows]
    for piece in np.array_split(distance, max(1, min(_PIECES, len(distance) // _PIECE))):
        least = np.sort(piece)[:_ALIKE]
        if len(least) == _ALIKE and least[-1] - least[0] <= _ALIKE_NS:
            yield int(least[0])


def _long_waits(trace: Trace) -> _Periods:
    """Long waits for all work of the device."""
    runtime = trace.runtime
    names = np.array([runtime_calls.is_device_sync(name) for name in trace.names] or [False])
    rows = np.flatnonzero(names[runtime.name] & (runtime.duration >= _LONG_WAIT_NS))
    return _Periods(runtime.start[rows], runtime.end_of(rows))


def _most_late(launched: I8, ended: I8, waits: _Periods) -> int:
    """How long the work goes on after a wait for it has ended, at most; negative if it ends earlier, _UNKNOWN if
    nothing waits.
    """
    order = np.argsort(launched, kind="stable")
    last = np.maximum.accumulate(ended[order])
    issued = np.searchsorted(launched[order], waits.start)
    late = last[issued[issued > 0] - 1] - waits.end[issued > 0]
    return int(late.max(initial=_UNKNOWN))
