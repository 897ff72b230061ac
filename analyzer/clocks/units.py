"""A file whose times are in nanoseconds, where the format has microseconds."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from traceopt.analyzer.arrays.percentiles import percentiles
from traceopt.analyzer.clocks.all_times import all_times, with_times
from traceopt.analyzer.tables.time_faults import TimeFault
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.vocabulary import runtime_calls

_UNIT = 1_000  # from ns to us
_LONG_NS = 1_000_000  # of launches and operators: real ones take 1 to 50 us


def in_microseconds(trace: Trace) -> tuple[Trace, list[TimeFault]]:
    """The trace with times in the unit of the format, if all calls that are short take milliseconds."""
    launches = np.array([runtime_calls.is_kernel_launch(name) for name in trace.names] or [False])
    # A tenth of the launches does not wait for room in the queue. Half of the operators only call others.
    samples = (trace.runtime.duration[launches[trace.runtime.name]], 50, 10), (trace.ops.duration, 200, 50)
    short = [percentiles(durations, part)[0] for durations, fewest, part in samples if len(durations) >= fewest]
    if not short or min(short) < _LONG_NS:
        return trace, []
    whole = not any((times % _UNIT).any() for times in all_times(trace))
    fault = TimeFault("unit", whole, trace.meta.event_count, trace.meta.event_count)
    if not whole:
        return trace, [fault]
    meta = replace(trace.meta, start_ns=None)
    return replace(with_times(trace, lambda times: times // _UNIT, _UNIT), meta=meta), [fault]
