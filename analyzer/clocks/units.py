"""A file whose times are in nanoseconds, where the format has microseconds."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from traceopt.analyzer.arrays.percentiles import percentiles
from traceopt.analyzer.clocks.all_times import all_times, with_times
from traceopt.analyzer.tables.launches import calls_named
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.tables.trace import TimeFault, Trace
from traceopt.analyzer.vocabulary import runtime_calls
from traceopt.analyzer.vocabulary.op_names import VIEWS

_UNIT = 1_000  # from ns to us
_LONG_NS = 1_000_000  # of a launch: real ones take 1 to 50 us
_LONG_VIEW_NS = 200_000  # of an operator that makes another view of a tensor: real ones take 0.5 to 5 us
_SHORT_NS = 100  # of launches: all of them
_FEWEST, _MANY = 20, 50


def in_microseconds(trace: Trace) -> tuple[Trace, list[TimeFault]]:
    """The trace with times in the unit of the format, if all calls that are short take milliseconds."""
    launches = trace.runtime.duration[calls_named(trace, runtime_calls.is_kernel_launch)]
    too_long = _too_long(trace, launches)
    if not too_long and (len(launches) < _FEWEST or launches.max() >= _SHORT_NS):
        return trace, []
    count = trace.meta.event_count
    if not too_long or any((times % _UNIT).any() for times in all_times(trace)):
        return trace, [TimeFault("unit", False, count, count)]
    corrected = with_times(trace, lambda times: times // _UNIT, _UNIT)
    return replace(corrected, meta=replace(trace.meta, start_ns=None)), [TimeFault("unit", True, count, count)]


def _too_long(trace: Trace, launches: I8) -> bool:
    """Whether all calls that are short take milliseconds: launches, of which a tenth does not wait for room in the
    queue, and operators that make views.
    """
    if len(launches) >= _MANY and percentiles(launches, 10)[0] < _LONG_NS:
        return False
    codes = [code for code, name in enumerate(trace.names) if name in VIEWS]
    views = trace.ops.duration[np.isin(trace.ops.name, codes)]
    if len(views) < _MANY:
        return len(launches) >= _MANY
    return bool(percentiles(views, 50)[0] >= _LONG_VIEW_NS)
