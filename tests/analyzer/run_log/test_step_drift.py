"""Drift in the step times of a whole run: what is planted is found, and noise gives no finding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from traceopt.analyzer.run_log.step_drift import Drift, find_drift
from traceopt.analyzer.run_log.step_ledger import read_ledger

BASE_US = 10_000.0


def noise(kind: str, count: int, random: np.random.Generator) -> Any:
    """Stationary noise around 0, as a share of a step."""
    if kind == "normal":
        return random.normal(0, 0.05, count)
    if kind == "heavy-tailed":
        return 0.03 * random.standard_t(1.5, count)
    if kind == "two lengths":
        return random.choice([0.0, 0.4], count)
    correlation = {"autocorrelated": 0.7, "strongly autocorrelated": 0.97}[kind]
    values = np.empty(count)
    values[0] = random.normal(0, 1)
    for index in range(1, count):
        values[index] = correlation * values[index - 1] + random.normal(0, (1 - correlation**2) ** 0.5)
    return 0.05 * values


def drift_of(shares: Any, **more: Any) -> Drift:
    step_us = np.maximum(BASE_US * (1 + shares), 100.0)
    ledger = read_ledger({"step_us": step_us.tolist(), **more})
    assert ledger is not None
    found = find_drift(ledger)
    assert found is not None
    return found


@pytest.mark.parametrize("kind", ["normal", "heavy-tailed", "two lengths", "autocorrelated", "strongly autocorrelated"])
def test_stationary_noise_gives_no_finding(kind: str) -> None:
    """100 series of 2,000 steps for each kind: at most 1 of 100 may look like a drift by accident."""
    random = np.random.default_rng(17)
    found = [drift_of(noise(kind, 2_000, random)) for _ in range(100)]
    false = [one for one in found if one.change or one.period]
    assert len(false) <= 1


@pytest.mark.parametrize("kind", ["normal", "heavy-tailed", "autocorrelated"])
def test_a_planted_change_is_found_at_its_step(kind: str) -> None:
    random = np.random.default_rng(3)
    later = np.where(np.arange(3_000) >= 1_800, 0.4, 0.0)
    for _ in range(20):
        change = drift_of(noise(kind, 3_000, random) * 0.5 + later).change
        assert change is not None
        assert change.step is not None
        assert abs(change.step - 1_800) <= 40
        assert 0.3 < change.after_ns / change.before_ns - 1 < 0.5


def test_a_clear_change_in_a_short_run_is_found_despite_slow_waves() -> None:
    """Neighboring blocks resemble each other, so the rank test alone has too few independent blocks."""
    steps = np.arange(194)
    waves = 0.001 * np.sin(steps / 15)
    assert (found := drift_of(waves + (steps >= 114)).change) is not None
    assert found.step is not None
    assert abs(found.step - 114) <= 3
    assert drift_of(waves).change is None


def test_random_walks_and_slowly_switching_steps_give_no_abrupt_change() -> None:
    random = np.random.default_rng(5)
    walks = [drift_of(0.01 * np.cumsum(random.normal(0, 0.1, 1_000))) for _ in range(100)]
    switches = [drift_of(np.repeat(random.choice([0.0, 0.4], 50), 20)) for _ in range(100)]
    abrupt = [drift for drift in (*walks, *switches) if drift.change is not None and drift.change.step is not None]
    assert len(abrupt) <= 2


def test_growth_is_told_from_a_change() -> None:
    random = np.random.default_rng(5)
    growth = drift_of(noise("autocorrelated", 2_000, random) + np.linspace(0, 0.6, 2_000)).change
    assert growth is not None
    assert growth.step is None
    assert 0.3 < growth.after_ns / growth.before_ns - 1 < 0.6


def test_long_steps_at_regular_distances() -> None:
    random = np.random.default_rng(7)
    shares = noise("normal", 5_000, random)
    shares[499::500] += 3.0
    found = drift_of(shares)
    assert found.change is None
    assert found.period is not None
    assert (found.period.every, found.period.first_step, found.period.count) == (500, 499, 10)


def test_saves_evaluations_and_recorded_steps_do_not_count() -> None:
    shares = noise("normal", 1_000, np.random.default_rng(9))
    shares[99::100] += 3.0
    shares[400:700] += 2.0
    saves = [[step, 3 * BASE_US] for step in range(99, 1_000, 100)]
    found = drift_of(
        shares, saves=saves, windows=[{"cycle": "overview", "warmup_from": 400, "from": 400, "until": 700}]
    )
    assert (found.change, found.period) == (None, None)


def test_a_wait_for_data_that_grows_is_named() -> None:
    random = np.random.default_rng(11)
    later = np.where(np.arange(1_000) >= 600, 0.5, 0.0)
    shares = noise("normal", 1_000, random) + later
    fetch_us = BASE_US * (0.1 + later)
    change = drift_of(shares, fetch_us=fetch_us.tolist()).change
    assert change is not None
    assert change.data_ns == pytest.approx(0.5 * BASE_US * 1e3, rel=0.01)


def test_too_few_steps_are_not_judged() -> None:
    ledger = read_ledger({"step_us": [BASE_US] * 100})
    assert ledger is not None
    assert find_drift(ledger) is None
