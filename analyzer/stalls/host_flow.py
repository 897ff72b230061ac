"""What the host threads that launch work did; without launches, the training thread."""

from __future__ import annotations

from traceopt.analyzer.arrays.intervals import Intervals, intersect, subtract, union
from traceopt.analyzer.stalls.python_holes import Holes
from traceopt.analyzer.tables.schema import I4
from traceopt.analyzer.timeline.host_activity import Host
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary.host_activities import HOLE


def flow_areas(host: Host, steps: Steps, launching_threads: I4, holes: Holes) -> dict[str, Intervals]:
    """Exclusive activities by name. `launching_threads` are the threads that launch the device's work."""
    others = launching_threads[launching_threads != steps.thread].tolist()
    areas = host.of_thread_else(others[-1], steps.thread) if others else host.of_thread(steps.thread)
    silent = union(holes.start, holes.end)
    return areas | {"python": subtract(areas["python"], silent), HOLE: intersect(areas["python"], silent)}
