"""The facts of events that a test writes down."""

from __future__ import annotations

from typing import Any

from traceopt.analyzer.facts import Facts
from traceopt.testing import A100
from traceopt.testing.events import Json, annotation, read


def facts_of(*events: Json | list[Json], step_us: float = 1_000, steps: int = 1, **metadata: Any) -> Facts:
    """Of consecutive marked steps, which begin at 0 on the main thread, and of events or groups of events."""
    marks = [annotation(f"ProfilerStep#{index}", index * step_us, step_us) for index in range(steps)]
    listed = [event for one in events for event in (one if isinstance(one, list) else [one])]
    return Facts(read([*marks, *listed], **metadata))


def facts_on_an_a100(*events: Json | list[Json], **options: Any) -> Facts:
    return facts_of(*events, deviceProperties=[A100], **options)
