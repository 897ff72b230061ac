"""The sections of the document agree with each other: one quantity has one value."""

from __future__ import annotations

import pytest
from support.traces import GENERATED, REAL, AnalyzedTrace, over

from traceopt.document import sections
from traceopt.reports.words.fixes.headline import tiles
from traceopt.result.sections.step import MANY_STEPS
from traceopt.result.sections.work_rows import BreakdownPart
from traceopt.result.words.quantities import ms_of_us
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


@over(GENERATED, REAL)
def test_the_spread_is_of_the_steps_of_the_mean(trace: AnalyzedTrace) -> None:
    """So that the mean lies in it, and of few steps each end is a step that was recorded."""
    step = trace.result.step
    if step.p10_us is None or step.p90_us is None or step.typical_us is None:
        return
    typical = [step.per_step_us[index] for index in step.typical_steps]
    assert min(typical) <= step.p10_us <= step.p90_us <= max(typical)
    if len(typical) < MANY_STEPS:
        assert (step.p10_us, step.p90_us) == (min(typical), max(typical))
        assert step.p10_us - 0.001 <= step.typical_us <= step.p90_us + 0.001
        assert not any("p10" in tile.note for tile in tiles(trace.result))
    if 1 < len(typical) < step.count and trace.result.quality.verdict != "unusable" and step.source != "window":
        assert ms_of_us(max(typical)) in tiles(trace.result)[0].note or len(typical) >= MANY_STEPS
