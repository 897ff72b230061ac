"""The sections of the document agree with each other: one quantity has one value."""

from __future__ import annotations

import pytest

from traceopt.document import sections
from traceopt.result.sections.work_rows import BreakdownPart
from traceopt.testing import Machine
from traceopt.testing.machine import A100


def host_sync(trace: Machine) -> BreakdownPart | None:
    return next((part for part in sections.breakdown(trace.facts()) if part.name == "host_sync"), None)


def test_a_sync_takes_as_long_in_the_parts_as_in_the_sentence() -> None:
    """The GPU is far behind the host, so that the measured step begins after the sync at the start of its mark."""
    trace = Machine(A100)
    trace.launch(20_000)
    for _ in range(3):
        with trace.step():
            trace.synchronize()
            trace.launch(5_000)
            trace.idle(1_000)
    trace.synchronize()
    part, sync = host_sync(trace), sections.sync(trace.facts())
    assert part is not None
    assert part.raw_us_per_step == pytest.approx(sync.us_per_step)


def test_the_wait_after_the_last_step_is_no_sync_of_the_steps() -> None:
    trace = Machine(A100)
    for _ in range(3):
        with trace.step():
            trace.launch(10_000)
            trace.idle(100)
    trace.synchronize()  # as the profiler does when it stops
    assert sections.sync(trace.facts()).us_per_step == 0
    assert host_sync(trace) is None
