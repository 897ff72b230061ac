"""Whether the losses of two sides are the same."""

from __future__ import annotations

import math
import random

import pytest

from traceopt.trying.losses import compare_losses
from traceopt.trying.spread import over_seeds

FALLING = [3.0, 2.0, 1.5, 1.2]


def scaled(*factors: float) -> list[float]:
    return [loss * factor for loss, factor in zip(FALLING, factors, strict=True)]


def test_the_same_to_the_bit() -> None:
    found = compare_losses([FALLING, FALLING], [FALLING, [*FALLING, 1.0]])
    assert (found.verdict, found.usual_share) == ("identical", 0.0)
    assert found.before == found.after == FALLING


@pytest.mark.parametrize(("difference", "within"), [(1e-7, 1e-6), (5e-4, 1e-3), (9e-3, 1e-2)])
def test_close(difference: float, within: float) -> None:
    found = compare_losses([FALLING], [scaled(1, 1, 1 + difference, 1)])
    assert (found.verdict, found.within_share) == ("close", within)


def test_drift_from_the_first_step_that_differs_by_more() -> None:
    found = compare_losses([FALLING], [scaled(1, 1.001, 1.05, 1.2)])
    assert (found.verdict, found.from_step) == ("drifts", 2)


def test_runs_that_differ_by_themselves_allow_for_more() -> None:
    found = compare_losses([FALLING, scaled(1, 1, 1, 1.02)], [scaled(1, 1, 1, 0.98)])
    assert found.verdict == "close"
    assert found.usual_share == pytest.approx(0.0196, abs=1e-4)


def test_not_a_number() -> None:
    broken = [3.0, math.nan]
    assert compare_losses([broken], [broken]).verdict == "identical"
    assert compare_losses([[3.0, 2.0]], [broken]).from_step == 1


def test_nothing_to_compare() -> None:
    assert compare_losses([[]], [FALLING]).verdict == "unknown"
    assert compare_losses([FALLING, []], [FALLING, FALLING]).verdict == "unknown"


def drawn(seeds: int, *, factor: float = 1.0, noise: float = 0.05, first: int = 0) -> list[list[float]]:
    """Losses of runs that begin with the same weights, and differ from there on."""
    chance = random.Random(first)  # noqa: S311
    return [
        [3.0 * factor**step / (1 + 0.1 * step) * chance.gauss(1 + 0.02 * seed, noise) for step in range(30)]
        for seed in range(seeds)
    ]


def test_other_random_numbers() -> None:
    found = [over_seeds(drawn(8, first=first), drawn(8, first=-first)) for first in range(100, 140)]
    assert sum(one.same for one in found) >= 38
    assert max(one.largest_share for one in found if one.same) < 0.1


@pytest.mark.parametrize("factor", [0.98, 1.02])
def test_another_training_has_other_losses_with_every_seed(factor: float) -> None:
    assert all(over_seeds(drawn(8), drawn(8, factor=factor, first=first)).differs for first in range(1, 21))


def test_noise_that_could_hide_a_difference_does_not_count_as_the_same() -> None:
    found = over_seeds(drawn(8, noise=0.9), drawn(8, noise=0.9, first=1))
    assert (found.differs, found.same) == (False, False)
    assert not over_seeds(drawn(7), drawn(7, first=1)).same
    assert over_seeds(drawn(8), [[math.nan] * 30] * 8).differs
