"""The one trace file that a path stands for."""

from __future__ import annotations

from traceopt.analyzer.reading.sources import TraceSource, find_traces
from traceopt.errors import InputError, visible


def one_trace(path: str) -> TraceSource:
    """Raises InputError if the path leads to no trace, or to several."""
    sources = find_traces([path])
    if len(sources) > 1:
        raise InputError(
            f"{visible(path)} holds {len(sources):,} traces; name one, such as {visible(sources[0].label)}"
        )
    return sources[0]
