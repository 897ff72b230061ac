"""The one trace file that a path stands for."""

from __future__ import annotations

from traceopt.analyzer.reading.source_search import find_traces
from traceopt.analyzer.reading.sources import TraceSource
from traceopt.errors import InputError, visible


def one_trace(path: str) -> TraceSource:
    """Raises InputError if the path leads to no trace, to several, or to an export of Nsight Systems."""
    sources = find_traces([path])
    if any(source.process is not None for source in sources):
        raise InputError(
            f"{visible(path)} is an export of Nsight Systems, which only traceopt analyze reads. "
            "Open its .nsys-rep in Nsight Systems (nsys-ui)"
        )
    if len(sources) > 1:
        raise InputError(
            f"{visible(path)} holds {len(sources):,} traces; name one, such as {visible(sources[0].label)}"
        )
    return sources[0]
