"""The series of steps: the parts of each recorded step add up to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import GetExample


@pytest.mark.parametrize("scenario", ["five_faults", "cpu_only", "exposed_allreduce"])
def test_the_parts_of_each_step_add_up_to_it(example: GetExample, scenario: str) -> None:
    step = example(scenario).result.step
    assert step.series is not None
    assert step.series.first == 0
    assert len(step.series.names) == step.count
    totals = [sum(times) for times in zip(*(part.us for part in step.series.parts), strict=True)]
    assert totals == pytest.approx(step.per_step_us, abs=0.01)
    timeline = example(scenario).result.timeline
    assert timeline is not None
    assert step.series.names[step.series.shown] == timeline.step


def test_the_mean_of_the_typical_steps_is_the_breakdown(example: GetExample) -> None:
    result = example("five_faults").result
    assert result.step.series is not None
    for part in result.step.series.parts:
        mean = sum(part.us[index] for index in result.step.typical_steps) / len(result.step.typical_steps)
        (shown,) = [row for row in result.breakdown if row.name == part.name]
        assert mean == pytest.approx(shown.us_per_step, abs=0.01)
