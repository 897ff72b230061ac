"""The verdict stays right although the rounds end as soon as the interval is narrow, on machines of any noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from traceopt.try_script.tuning import is_known
from traceopt.trying.changes import Change, Prediction
from traceopt.trying.measured_run import MeasuredRun
from traceopt.trying.rounds import Rounds
from traceopt.trying.session import Session

TRIALS = 200
PREDICTED = Prediction(300.0, 300.0, 300.0)  # of a step of 1,000 us: two rounds can settle it


def verdicts(
    noise: float, gain_share: float, enough: Callable[[Rounds], bool] = lambda rounds: rounds.settled
) -> Counter[str]:
    """`noise`: the standard deviation of runs of the same code, as a share of the step."""
    rng = np.random.default_rng(1)

    def run(changes: Sequence[Change]) -> MeasuredRun:
        step_us = 1000.0 * np.exp(rng.normal(0, noise)) * (1 - gain_share if changes else 1)
        return MeasuredRun([float(step_us)] * 6)

    found: Counter[str] = Counter()
    for _ in range(TRIALS):
        session = Session(lambda sides: list(map(run, sides)), budget_s=60.0, enough=enough, clock=lambda: 0.0)
        session.try_all([Change("a", "environment", "a", "environment", alone=PREDICTED)])
        found[session.tried[0].verdict] += 1
    return found


@pytest.mark.parametrize("noise", [0.005, 0.04])
def test_an_unchanged_script_is_neither_faster_nor_slower(noise: float) -> None:
    assert verdicts(noise, 0.0)["no_gain"] >= 0.94 * TRIALS


def test_the_predicted_gain_is_found_on_a_noisy_machine() -> None:
    assert verdicts(0.04, 0.3) == {"keep": TRIALS}


@pytest.mark.parametrize("noise", [0.005, 0.04])
def test_a_tuning_keeps_nothing_unchanged(noise: float) -> None:
    """Although it ends as soon as it is known whether a change is kept."""
    assert verdicts(noise, 0.0, is_known)["keep"] <= 0.01 * TRIALS


def test_a_tuning_finds_the_predicted_gain() -> None:
    assert verdicts(0.04, 0.3, is_known) == {"keep": TRIALS}
