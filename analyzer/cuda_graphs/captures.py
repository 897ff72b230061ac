"""The captures of CUDA graphs in a trace: the launches that were recorded into a graph instead of run."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceopt.analyzer.tables.schema import I8, KERNEL, MEMCPY, MEMSET
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.call_tree import RUNTIME, Slices
from traceopt.analyzer.timeline.launch_links import LaunchLinks
from traceopt.analyzer.vocabulary import runtime_calls

_KINDS = {"kernel": KERNEL, "copy": MEMCPY, "fill": MEMSET}


class Capture(Struct, frozen=True):
    """One capture: when it begins (ns), the slices of its launches in order, and the kind of work that each adds to the
    graph (KERNEL, MEMCPY, MEMSET). Shapes (nodes,).
    """

    start: int
    launches: I8
    kinds: tuple[int, ...]


def find_captures(trace: Trace, slices: Slices, links: LaunchLinks) -> list[Capture]:
    """In the order of the file. A capture includes the launches of all threads, such as the backward thread."""
    runtime = trace.runtime
    names = [trace.names[code] for code in runtime.name.tolist()] if _captures(trace) else []
    begins = [row for row, name in enumerate(names) if runtime_calls.is_capture_begin(name)]
    ends = [row for row, name in enumerate(names) if runtime_calls.is_capture_end(name)]
    has_work = np.zeros(len(runtime), bool)
    has_work[links.launch[links.launch >= 0]] = True
    kind_of = np.array([_KINDS.get(runtime_calls.launched_kind(name) or "", -1) for name in names], np.int64)
    captures = []
    for begin in begins:
        end = next((row for row in ends if row > begin and runtime.thread[row] == runtime.thread[begin]), None)
        if end is None:
            continue
        inside = (runtime.start > runtime.start[begin]) & (runtime.start < runtime.start[end])
        rows = np.flatnonzero(inside & (kind_of >= 0) & ~has_work)
        calls = slices.of(RUNTIME, len(runtime))[rows]
        outer = slices.parent[calls]
        nested = (outer >= 0) & (slices.kind[outer] == RUNTIME)  # a driver call inside its runtime call
        start = int(runtime.start[begin])
        captures.append(Capture(start, calls[~nested].astype(np.int64), tuple(kind_of[rows[~nested]].tolist())))
    return [capture for capture in captures if capture.kinds]


def _captures(trace: Trace) -> bool:
    """Whether the trace names such a call at all."""
    return any(runtime_calls.is_capture_begin(name) for name in trace.names)
