"""The series of steps: the parts of each recorded step add up to it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from support.recorded_facts import generated
from support.traces import GetExample

from fixtures.generate import generate
from traceopt.document.timeline.step_series import step_series
from traceopt.testing import facts_of


@pytest.mark.parametrize("scenario", ["five_faults", "cpu_only", "exposed_allreduce"])
def test_the_parts_of_each_step_add_up_to_it(example: GetExample, scenario: str) -> None:
    step = example(scenario).result.step
    assert step.series is not None
    assert step.series.first == 0
    assert len(step.series.names) == step.count
    totals = [sum(times) for times in zip(*(part.us for part in step.series.parts), strict=True)]
    assert totals == pytest.approx(step.per_step_us, rel=1e-4)
    timeline = example(scenario).result.timeline
    assert timeline is not None
    assert step.series.names[step.series.shown] == timeline.step


def test_the_mean_of_the_typical_steps_is_the_breakdown(example: GetExample) -> None:
    result = example("five_faults").result
    assert result.step.series is not None
    for part in result.step.series.parts:
        mean = sum(part.us[index] for index in result.step.typical_steps) / len(result.step.typical_steps)
        (shown,) = [row for row in result.breakdown if row.name == part.name]
        assert mean == pytest.approx(shown.us_per_step, rel=1e-4, abs=0.01)


def test_memory_that_each_step_keeps_shows_in_the_series() -> None:
    """Planted: each step keeps 100 MB. Fixed: none does."""
    growth = {}
    for leak_bytes in (0, 100_000_000):
        series = step_series(facts_of(generate("healthy", steps=5, layers=1, leak_bytes=leak_bytes).to_bytes()))
        assert series is not None
        peaks = [peak for peak in series.peak_memory_bytes if peak is not None]
        assert len(peaks) == 5
        growth[leak_bytes] = [after - before for before, after in pairwise(peaks)]
    assert growth[0] == [0] * 4
    assert growth[100_000_000] == pytest.approx([100_000_000] * 4, rel=0.01)


def test_steps_that_evaluate_or_save_are_known_by_their_numbers() -> None:
    evaluations = [5_000.0 if step == 4 else 0.0 for step in range(20)]
    ledger = {"step_us": [10_000.0] * 20, "eval_us": evaluations, "saves": [[6, 2_000.0], [2, 1_000.0]]}
    change = {f"ledger.{name}": value for name, value in (ledger | {"fetch_us": None}).items()}
    series = step_series(generated("healthy", change=change, steps=4, layers=1))
    assert series is not None
    assert series.names == [f"ProfilerStep#{number}" for number in (3, 4, 5, 6)]
    assert (series.evaluated, series.saved) == ([1], [3])
