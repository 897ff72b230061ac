"""A file whose times are in nanoseconds, where the format has microseconds."""

from __future__ import annotations

from msgspec.structs import replace

from traceopt.analyzer.arrays.percentiles import percentiles
from traceopt.analyzer.clocks.all_times import all_times, with_times
from traceopt.analyzer.tables.launches import calls_named
from traceopt.analyzer.tables.time_faults import TimeFault
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.vocabulary import runtime_calls

_UNIT = 1_000  # from ns to us
_LONG_NS = 1_000_000  # of launches and operators: real ones take 1 to 50 us
_SHORT_NS = 100  # of launches: all of them
_FEWEST = 20


def in_microseconds(trace: Trace) -> tuple[Trace, list[TimeFault]]:
    """The trace with times in the unit of the format, if all calls that are short take milliseconds."""
    launches = trace.runtime.duration[calls_named(trace, runtime_calls.is_kernel_launch)]
    ops = trace.ops.duration
    # A tenth of the launches does not wait for room in the queue. Half of the operators only call others.
    samples = (launches, 50, 10), (ops, 200, 50)
    short = [percentiles(durations, part)[0] for durations, fewest, part in samples if len(durations) >= fewest]
    too_long = bool(short) and min(short) >= _LONG_NS
    if not too_long and (len(launches) < _FEWEST or launches.max() >= _SHORT_NS):
        return trace, []
    count = trace.meta.event_count
    if not too_long or any((times % _UNIT).any() for times in all_times(trace)):
        return trace, [TimeFault("unit", False, count, count)]
    corrected = with_times(trace, lambda times: times // _UNIT, _UNIT)
    return replace(corrected, meta=replace(trace.meta, start_ns=None)), [TimeFault("unit", True, count, count)]
