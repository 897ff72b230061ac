"""A trace as read, with times that can be."""

from __future__ import annotations

from msgspec.structs import replace

from traceopt.analyzer.clocks.all_times import from_first_event
from traceopt.analyzer.clocks.copy_rates import no_faster_than_links
from traceopt.analyzer.clocks.far_events import near_the_others
from traceopt.analyzer.clocks.gpu_clock import on_the_host_clock
from traceopt.analyzer.clocks.stream_order import in_stream_order
from traceopt.analyzer.clocks.units import in_microseconds
from traceopt.analyzer.tables.trace import Trace


def with_possible_times(trace: Trace) -> Trace:
    """The trace with times that cannot be corrected where it is certain what they are, and all of them noted.

    One kind of fault is noted, the first: wrong durations also look like a wrong clock.
    """
    for correct in (near_the_others, in_microseconds, in_stream_order, no_faster_than_links, on_the_host_clock):
        corrected, faults = correct(trace)
        if faults:
            meta = replace(corrected.meta, time_faults=tuple(faults))
            return from_first_event(replace(corrected, meta=meta))
    return trace
