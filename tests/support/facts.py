"""The facts of events that a test writes down."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from traceopt.analyzer.facts import Facts
from traceopt.testing import A100
from traceopt.testing.events import Json, annotation, kernel, read, runtime

_OF_A_STEP = ("Sequence number", "correlation")


def facts_of(*events: Json | list[Json], step_us: float = 1_000, steps: int = 1, **metadata: Any) -> Facts:
    """Of consecutive marked steps, which begin at 0 on the main thread, and of events or groups of events."""
    marks = [annotation(f"ProfilerStep#{index}", index * step_us, step_us) for index in range(steps)]
    listed = [event for one in events for event in (one if isinstance(one, list) else [one])]
    return Facts(read([*marks, *listed], **metadata))


def repeated(*parts: Iterable[Json], step_us: float, steps: int = 4) -> list[Json]:
    """Marked steps that all have these events. Their times count from the start of a step, and each step has its own
    sequence numbers and correlations.
    """
    events: list[Json] = []
    for step in range(steps):
        start = step * step_us
        events.append(annotation(f"ProfilerStep#{step}", start, step_us))
        for event in (event for part in parts for event in part):
            own = {key: event["args"][key] + 1_000 * step for key in _OF_A_STEP if key in event["args"]}
            events.append(event | {"ts": event["ts"] + start, "args": event["args"] | own})
    return events


def launched_by(events: Iterable[Json], *names: str, kernel_name: str = "ampere_sgemm_128x64_nn") -> list[Json]:
    """For each operator with one of these names, a launch and a kernel that runs for its time."""
    operators = [event for event in events if event["name"] in names]
    return [
        made
        for number, operator in enumerate(operators, 1)
        for made in (
            runtime("cudaLaunchKernel", operator["ts"] + 1, 2, number),
            kernel(kernel_name, operator["ts"] + 5, operator["dur"], number),
        )
    ]


def facts_on_an_a100(*events: Json | list[Json], **options: Any) -> Facts:
    return facts_of(*events, deviceProperties=[A100], **options)
