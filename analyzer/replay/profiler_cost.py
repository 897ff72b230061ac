"""Overhead of the profiler on the host: some hundred nanoseconds per event, which no fix saves."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.arrays.intervals import EMPTY, Intervals, union
from traceopt.analyzer.timeline.call_tree import PYTHON, Slices
from traceopt.analyzer.timeline.steps import Steps

MOST_NS = 1_000  # per event; a larger slowdown of recorded steps has another cause
MOST_SHARE = 0.5  # of the time until the next event: an operator also does something, however small it is


def find_profiler_cost(slices: Slices, steps: Steps, extra_ns: float, frames_recorded: bool) -> Intervals:
    """When the profiler ran inside the steps: at the start of every event, for an equal part of the slowdown of
    recorded steps (`extra_ns` per step), at most half of the time until the next event. `frames_recorded`: Python
    frames were recorded along with the times.
    """
    recorded = steps.host_window.contains(slices.start)
    if not frames_recorded:
        recorded &= slices.kind != PYTHON
    start, thread = slices.start[recorded], slices.thread[recorded]
    each = int(min(MOST_NS, max(0.0, extra_ns) * steps.count / max(1, len(start))))
    if not each:
        return EMPTY
    until_next = np.where(thread[1:] == thread[:-1], np.diff(start), MOST_NS / MOST_SHARE)
    most = np.append(until_next * MOST_SHARE, MOST_NS).astype(np.int64)
    return union(start, start + np.clip(most, 0, each))
