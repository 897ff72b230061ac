"""Steps that are long at a regular interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from traceopt.analyzer.run_log.regular_steps import RegularSteps, find_regular_steps
from traceopt.analyzer.run_log.step_ledger import read_ledger


def found_in(step_us: Sequence[float], **other: object) -> RegularSteps | None:
    """Of a run whose first step, which is never usual, is left out of the times."""
    ledger = read_ledger({"step_us": [1e6, *step_us], **other})
    assert ledger is not None
    return find_regular_steps(ledger)


def every(interval: int, count: int, long_us: float) -> list[float]:
    return [long_us if step % interval == interval - 1 else 10_000.0 for step in range(count)]


def test_one_step_in_four() -> None:
    found = found_in(every(4, 80, 30_000.0))
    assert found is not None
    assert (found.every, found.count) == (4, 20)
    assert (found.long_ns, found.usual_ns) == (30e6, 10e6)
    assert found.excess_share == pytest.approx(20 / 60, abs=0.01)


def test_noise_does_not_hide_it() -> None:
    noise = np.random.default_rng(0).normal(1, 0.1, 80).clip(0.7, 1.3)
    found = found_in((np.array(every(4, 80, 30_000.0)) * noise).tolist())
    assert found is not None
    assert found.every == 4


@pytest.mark.parametrize(
    "step_us",
    [
        [10_000.0] * 80,
        every(4, 12, 30_000.0),
        every(40, 120, 90_000.0),
        every(2, 80, 30_000.0),
        every(4, 80, 13_000.0),
        np.random.default_rng(1).choice([10_000.0, 40_000.0], 80, p=[0.8, 0.2]).tolist(),
    ],
    ids=["equal", "few steps", "few long ones", "every second", "little longer", "at random"],
)
def test_other_runs_have_none(step_us: list[float]) -> None:
    assert found_in(step_us) is None


def test_evaluations_are_no_long_steps() -> None:
    steps = every(4, 80, 30_000.0)
    evaluated = [0.0, *(us - 10_000.0 for us in steps)]
    assert found_in(steps, eval_us=evaluated) is None
