"""A part of the events far from the others, as after an overflow of a counter of microseconds in 32 bits."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from traceopt.analyzer.clocks.all_times import all_times, with_times, within
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.tables.trace import TimeFault, Trace

_WRAP_NS = 2**32 * 1_000
_HOLE_NS = _WRAP_NS // 4  # no event for so long: 18 minutes
_FEW = 0.01  # of the events: without so many, the times that are left are those of the run
_NEAR_NS = 10 * 10**9  # events outside of the others' time that belong to them


def near_the_others(trace: Trace) -> tuple[Trace, list[TimeFault]]:
    """The trace with far events moved back, if they are a counter's range away from the others; else without them."""
    tables = all_times(trace)
    from_nsight = "nsight" in trace.meta.header  # counts ns in 64 bits, and may record for hours
    if from_nsight or max((int(times.max()) for times in tables), default=0) < _HOLE_NS:
        return trace, []
    times = np.sort(np.concatenate(tables))
    near = times[_without_holes(times, len(times) // 2)]
    far, middle = len(times) - len(near), int(near[len(near) // 2])
    if not far:
        return trace, []
    apart = float(max(near[0] - times[0], times[-1] - near[-1]))

    def moved(times: I8) -> I8:
        return times - np.rint((times - middle) / _WRAP_NS).astype(np.int64) * _WRAP_NS

    back = moved(times)
    if back.min() >= near[0] - _NEAR_NS and back.max() <= near[-1] + _NEAR_NS:
        return with_times(trace, moved), [TimeFault("far", True, far, len(times), apart)]
    few = far <= _FEW * len(times)
    meta = replace(trace.meta, lost_events=trace.meta.lost_events + far)
    return replace(within(trace, near[0], near[-1]), meta=meta), [TimeFault("left_out", few, far, len(times), apart)]


def _without_holes(times: I8, place: int) -> slice:
    """The range of sorted times around a place that has no hole."""
    holes = np.flatnonzero(np.diff(times) >= _HOLE_NS)
    before, after = holes[holes < place], holes[holes >= place]
    return slice(int(before.max(initial=-1)) + 1, int(after.min(initial=len(times) - 1)) + 1)
