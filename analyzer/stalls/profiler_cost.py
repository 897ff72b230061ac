"""What recording itself costs the host: some hundred nanoseconds for every event, which no fix gives back."""

from __future__ import annotations

from traceopt.analyzer.arrays.intervals import EMPTY, Intervals, union
from traceopt.analyzer.timeline.call_tree import PYTHON, Slices
from traceopt.analyzer.timeline.steps import Steps

MOST_NS = 1_000  # for an event; what recorded steps take longer beyond that has another reason


def find_profiler_cost(slices: Slices, steps: Steps, extra_ns: float, frames_recorded: bool) -> Intervals:
    """When the profiler worked in the steps: at the begin of every event, for an equal part of what recorded steps
    take longer than others (`extra_ns`). `frames_recorded`: Python frames were, while these times were measured.
    """
    began, ended = steps.window
    recorded = (slices.start >= began) & (slices.start < ended)
    if not frames_recorded:
        recorded &= slices.kind != PYTHON
    start = slices.start[recorded]
    each = int(min(MOST_NS, max(0.0, extra_ns) * steps.count / max(1, len(start))))
    return union(start, start + each) if each else EMPTY
