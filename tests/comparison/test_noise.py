"""The interval of a change is right as often as it claims, and honest about few steps and single runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceopt.comparison.noise import ASSUMED_SPREAD, differ, step_change, t99

Runs = list[list[float]]


def side(
    rng: np.random.Generator, runs: int, *, slower: float = 0.0, between: float = 0.02, within: float = 0.04
) -> Runs:
    """Runs of twenty steps of about 70 ms with run-to-run noise."""
    return [
        (70_000 * (1 + slower) * np.exp(rng.normal(0, between) + rng.normal(0, within, 20))).tolist()
        for _ in range(runs)
    ]


@pytest.mark.parametrize("runs", [2, 3, 7])
def test_runs_of_the_same_code_are_within_noise_99_times_in_100(runs: int) -> None:
    rng = np.random.default_rng(runs)
    verdicts = [step_change(side(rng, runs), side(rng, runs)).verdict for _ in range(400)]
    assert verdicts.count("within_noise") / 400 >= 0.97


def test_ten_runs_find_five_per_cent() -> None:
    rng = np.random.default_rng(0)
    changes = [step_change(side(rng, 10), side(rng, 10, slower=0.05)) for _ in range(200)]
    assert sum(change.verdict == "slower" for change in changes) >= 180
    assert np.median([change.change_share for change in changes]) == pytest.approx(0.05, abs=0.004)


def test_the_interval_contains_the_truth_99_times_in_100() -> None:
    rng = np.random.default_rng(1)
    changes = [step_change(side(rng, 4), side(rng, 4, slower=-0.10)) for _ in range(400)]
    held = [change.low_share <= -0.10 <= change.high_share for change in changes]
    assert 0.97 <= np.mean(held) < 1
    assert np.median([change.run_to_run_share for change in changes]) == pytest.approx(0.02, abs=0.005)


def test_with_one_run_per_side_run_to_run_noise_is_assumed() -> None:
    """The steps of both runs are steady, so judged by them alone two per cent would be a regression."""
    rng = np.random.default_rng(2)
    base, head = (side(rng, 1, slower=slower, between=0, within=0.002) for slower in (0.0, 0.02))
    change = step_change(base, head)
    assert change.verdict == "within_noise"
    assert change.unseen_share >= 2 * ASSUMED_SPREAD
    assert change.run_to_run_share is None


def test_with_one_run_per_side_a_large_change_is_detected() -> None:
    rng = np.random.default_rng(3)
    assert step_change(side(rng, 1), side(rng, 1, slower=0.3)).verdict == "slower"
    assert step_change(side(rng, 1, slower=0.3), side(rng, 1)).verdict == "faster"


def test_alternating_runs_share_slowdowns() -> None:
    """If the machine slows down and recovers, pairs show the change, but sides show the machine."""
    rng = np.random.default_rng(8)
    drift = np.exp(rng.normal(0, 0.1, 12))
    base, head = (
        [[us * slow for us in run] for run, slow in zip(side(rng, 12, slower=slower), drift, strict=True)]
        for slower in (0.0, 0.05)
    )
    assert step_change(base, head).verdict == "within_noise"
    in_turn = step_change(base, head, in_turn=True)
    assert (in_turn.verdict, in_turn.in_turn) == ("slower", True)
    same = [[us * slow for us in run] for run, slow in zip(side(rng, 12), drift, strict=True)]
    assert step_change(base, same, in_turn=True).verdict == "within_noise"


@pytest.mark.parametrize("runs", [2, 4])
def test_few_pairs_on_a_noisy_machine_are_within_noise(runs: int) -> None:
    """Runs differ by four times what is assumed, although their steps are steady."""
    rng = np.random.default_rng(9)
    sides = [[side(rng, runs, between=0.04, within=0.01) for _ in range(2)] for _ in range(400)]
    verdicts = [step_change(base, head, in_turn=True).verdict for base, head in sides]
    assert (verdicts.count("slower") + verdicts.count("faster")) / 400 <= 0.03


def test_several_baselines_judge_a_single_run() -> None:
    rng = np.random.default_rng(4)
    change = step_change(side(rng, 5), side(rng, 1, slower=0.2))
    assert change.verdict == "slower"
    assert change.run_to_run_share is not None


def test_correlated_steps_count_less() -> None:
    rng = np.random.default_rng(5)
    steps = np.exp(rng.normal(0, 0.05, 40)) * 1e4
    drifting = np.sort(steps)  # the same numbers, each similar to the one before it
    unseen = step_change([steps.tolist()], [steps.tolist()]).unseen_share
    assert step_change([drifting.tolist()], [drifting.tolist()]).unseen_share > 1.3 * unseen


def test_a_single_slow_step_does_not_widen_the_interval() -> None:
    rng = np.random.default_rng(6)
    base, head = side(rng, 1), side(rng, 1)
    burst = [[*head[0][:-1], 10 * head[0][-1]]]
    assert step_change(base, burst).unseen_share == pytest.approx(step_change(base, head).unseen_share, rel=0.3)


def test_a_side_with_one_step_borrows_the_spread_of_the_other() -> None:
    assert step_change([[99.0, 100.0, 101.0, 100.0]], [[150.0]]).verdict == "slower"
    assert step_change([[99.0, 150.0, 101.0, 60.0]], [[150.0]]).verdict == "unclear"


def test_one_step_per_side_is_unclear() -> None:
    change = step_change([[100.0]], [[150.0]])
    assert change.verdict == "unclear"
    assert change.change_share == pytest.approx(0.5)
    assert change.low_share is None
    assert "one step" in change.reason


def test_the_same_runs_are_within_noise() -> None:
    steps = [[100.0, 101.0, 99.0], [102.0, 100.0, 98.0]]
    for runs in (steps, steps[:1], [[100.0] * 5], [[100.0] * 5] * 2):
        change = step_change(runs, runs)
        assert (change.verdict, change.change_share) == ("within_noise", 0.0)


def test_the_same_run_twice_proves_nothing() -> None:
    """Its copies are identical, which says nothing about run-to-run noise."""
    rng = np.random.default_rng(7)
    base, head = (side(rng, 1, slower=slower, between=0) for slower in (0.0, 0.01))
    assert step_change(base * 2, head * 2).verdict == "within_noise"


@pytest.mark.parametrize("steps", [[], [0.0], [-1.0, math.nan, math.inf]])
def test_without_steps_nothing_is_measured(steps: list[float]) -> None:
    change = step_change([steps], [[1.0, 2.0]])
    assert change.verdict == "not_measured"
    assert change.change_share is None
    assert change.reason


@given(st.lists(st.lists(st.floats(), max_size=5), max_size=3), st.lists(st.lists(st.floats(), max_size=5), max_size=3))
def test_any_numbers_give_an_answer(base: Runs, head: Runs) -> None:
    change = step_change(base, head)
    assert (change.change_share is None) == (change.verdict == "not_measured")
    if change.low_share is not None:
        assert change.low_share <= change.change_share <= change.high_share


def test_quantities_of_runs() -> None:
    assert differ([1.0], [2.0]) is None
    assert differ([1.0, 1.1], [5.0, 5.1]) is True
    assert differ([1.0, 1.1, 0.9], [1.05, 1.0, 0.95]) is False
    assert differ([0.0, 0.0], [0.0, 0.0]) is False
    assert differ([], [1.0, 2.0]) is None


@pytest.mark.parametrize(
    ("freedom", "expected"), [(1, 63.657), (4, 4.604), (20, 2.845), (40, 2.704), (100, 2.626), (1e6, 2.576)]
)
def test_students_t(freedom: float, expected: float) -> None:
    assert t99(freedom) == pytest.approx(expected, abs=0.01)


def in_turn(noise: float, worst: float) -> tuple[Runs, Runs]:
    """Twenty pairs of runs of the same code; other programs slow one run of two pairs down by `worst`."""
    rng = np.random.default_rng(7)
    base, head = ([[70_000 * math.exp(rng.normal(0, noise))] * 20 for _ in range(20)] for _ in range(2))
    for number in (3, 11):
        head[number] = [us * (1 + worst) for us in head[number]]
    return base, head


def test_a_few_disturbed_pairs_do_not_widen_the_interval() -> None:
    calm, disturbed = (step_change(*in_turn(0.01, worst), in_turn=True) for worst in (0.0, 0.3))
    assert calm.low_share is not None
    assert disturbed.low_share is not None
    assert disturbed.high_share - disturbed.low_share < 1.3 * (calm.high_share - calm.low_share)
    assert disturbed.verdict == "within_noise"
    both = disturbed.head_us / disturbed.base_us - 1
    assert both == pytest.approx(disturbed.change_share, abs=1e-5), "the sides are those of the pairs that count"


@pytest.mark.parametrize("pairs", [10, 20])
def test_the_interval_of_usual_pairs_is_right_99_times_in_100(pairs: int) -> None:
    rng = np.random.default_rng(pairs)
    sides = [(side(rng, pairs), side(rng, pairs)) for _ in range(400)]
    wrong = sum(step_change(*both, in_turn=True).verdict != "within_noise" for both in sides)
    assert wrong <= 12
