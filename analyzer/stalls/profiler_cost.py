"""Overhead of the profiler on the host: some hundred nanoseconds per event, which no fix saves."""

from __future__ import annotations

from traceopt.analyzer.arrays.intervals import EMPTY, Intervals, union
from traceopt.analyzer.timeline.call_tree import PYTHON, Slices
from traceopt.analyzer.timeline.steps import Steps

MOST_NS = 1_000  # per event; a larger slowdown of recorded steps has another cause


def find_profiler_cost(slices: Slices, steps: Steps, extra_ns: float, frames_recorded: bool) -> Intervals:
    """When the profiler ran inside the steps: at the start of every event, for an equal part of the slowdown of
    recorded steps (`extra_ns` per step). `frames_recorded`: Python frames were recorded along with the times.
    """
    recorded = steps.host_window.contains(slices.start)
    if not frames_recorded:
        recorded &= slices.kind != PYTHON
    start = slices.start[recorded]
    each = int(min(MOST_NS, max(0.0, extra_ns) * steps.count / max(1, len(start))))
    return union(start, start + each) if each else EMPTY
