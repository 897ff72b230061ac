"""The same events in every step of a run on a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traceopt.analyzer.facts import Facts
from traceopt.testing.events import Json, annotation, document, read

if TYPE_CHECKING:
    pass


STEP_US = 10_000.0


NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"


def steps(*parts: list[Json], count: int = 3) -> Facts:
    """The same events in every step, moved to its place."""
    events: list[Json] = []
    for index in range(count):
        shift = index * STEP_US
        events.append(annotation(f"ProfilerStep#{index}", shift, STEP_US))
        for event in (event for part in parts for event in part):
            args = dict(event["args"])
            if "correlation" in args:
                args["correlation"] += 1_000 * index
            events.append({**event, "ts": event["ts"] + shift, "args": args})
    return Facts(read(document(events)))
