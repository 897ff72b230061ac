"""What the host threads that launch work did; without launches, the training thread."""

from __future__ import annotations

from traceopt.analyzer.arrays.intervals import Intervals, intersect, subtract, union
from traceopt.analyzer.stalls.untraced_python import UntracedPython
from traceopt.analyzer.tables.schema import I4
from traceopt.analyzer.timeline.host_activity import Host
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary.host_activities import UNTRACED_PYTHON


def flow_areas(
    host: Host, steps: Steps, launching_threads: I4, untraced_python: UntracedPython
) -> dict[str, Intervals]:
    """Exclusive activities by name. `launching_threads` are the threads that launch the device's work."""
    others = launching_threads[launching_threads != steps.thread].tolist()
    areas = host.of_thread_else(others[-1], steps.thread) if others else host.of_thread(steps.thread)
    untraced = union(untraced_python.start, untraced_python.end)
    return areas | {
        "python": subtract(areas["python"], untraced),
        UNTRACED_PYTHON: intersect(areas["python"], untraced),
    }
