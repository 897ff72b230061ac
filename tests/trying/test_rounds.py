"""When two sides have been measured well enough, and which rounds count."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import count

import pytest
from machine import Machine, a_change, a_run

from traceopt.reports.words.comparing import trial_words
from traceopt.result.words.quantities import percent, signed_percent
from traceopt.trying.changes import Change
from traceopt.trying.expectation import Expectation
from traceopt.trying.measured_run import Failure, MeasuredRun
from traceopt.trying.rounds import LEAST_ROUNDS, MOST_ROUNDS, Rounds, measure
from traceopt.trying.session import BUDGET_SPENT, Session, row_of


def test_a_wide_prediction_needs_two_rounds_and_a_narrow_one_more() -> None:
    [wide] = Machine(a=0.7).tried(a_change("a", 300.0))
    [narrow] = Machine(a=0.97).tried(a_change("a", 30.0))
    assert len(wide.rounds) == LEAST_ROUNDS
    assert LEAST_ROUNDS < len(narrow.rounds) < MOST_ROUNDS
    assert narrow.low_share is not None
    assert narrow.high_share is not None
    assert narrow.high_share - narrow.low_share <= 0.03 / 3
    assert [row.verdict for row in (wide, narrow)] == ["keep", "keep"]


def test_the_budget_is_shared_and_ends_the_rounds() -> None:
    changes = [a_change(name, 1.0) for name in "abc"]  # predictions that no budget would settle
    rows = Machine(a=1.0, b=1.0, c=1.0).tried(*changes, budget_s=60.0)
    assert [row.verdict for row in rows] == ["no_gain"] * 3
    assert [len(row.rounds) for row in rows] == [10, 10, 10]
    late = Machine(a=0.5, b=0.5, c=0.5).tried(*changes, budget_s=3.0)
    assert [row.reason for row in late] == [None, BUDGET_SPENT, BUDGET_SPENT]


@pytest.mark.parametrize("seed", range(20))
def test_an_unchanged_script_has_no_gain_and_a_gain_of_5_percent_is_found(seed: int) -> None:
    """On a machine whose runs differ by half a percent."""
    rows = Machine(0.005, seed, a=1.0, b=0.95).tried(a_change("a", 50.0), a_change("b", 50.0))
    assert [row.verdict for row in rows] == ["no_gain", "keep"]


def test_each_change_is_on_top_of_those_that_were_kept() -> None:
    rows = Machine(a=0.7, b=1.2, c=0.9).tried(*(a_change(name) for name in "abc"))
    assert [(row.name, row.verdict, row.on_top_of) for row in rows] == [
        ("a", "keep", []),
        ("b", "slower", ["a"]),
        ("c", "keep", ["a"]),
        ("all kept", "keep", []),
    ]
    assert rows[-1].gain_share == pytest.approx(1 - 0.7 * 0.9, abs=1e-3)


def test_a_machine_that_slows_down_favors_neither_side() -> None:
    """Each run takes 1 % longer than the one before. If the same side always came first, it would seem faster."""
    order, slowed_us = [], count(1000.0, 10.0)

    def run(sides: Sequence[str], /) -> list[MeasuredRun]:
        order.extend(sides)
        return [a_run(next(slowed_us)) for _ in sides]

    measured = measure(run, "A", "B", wanted_us=lambda _: 1.0, time_left=lambda: 12 - len(order))
    assert "".join(order) == "ABBAABBAABBA"
    assert measured.change().change_share == pytest.approx(0.0, abs=1e-3)


def test_a_round_in_which_others_held_the_cores_is_repeated() -> None:
    waits = iter([0.30, 0.01] + [0.01] * 20)

    def run(sides: Sequence[str], /) -> list[MeasuredRun]:
        found = [next(waits) for _ in sides]
        return [a_run(2000.0 if wait > 0.1 else 1000.0, wait) for wait in found]

    rounds = measure(run, "A", "B", wanted_us=lambda _: 500.0, time_left=lambda: 100.0)
    assert rounds.disturbed[0] == "other programs held the cores"
    assert rounds.counted == [1, 2]
    assert rounds.change().base_us == pytest.approx(1000.0)


def test_a_script_that_crowds_its_own_cores_is_not_disturbed() -> None:
    wanted = 0.5
    sides = a_run(1.0, 0.4), a_run(1.0, 0.41)
    rounds = measure(list, *sides, wanted_us=lambda _: wanted, time_left=lambda: 100.0)
    assert rounds.disturbed == [None, None]


def test_throttled_gpus() -> None:
    def at(share: float, throttled: str | None = None) -> MeasuredRun:
        return MeasuredRun([1.0] * 9, clock_share=share, throttled=throttled)

    rounds = Rounds([at(0.9), at(0.8), at(0.9)], [at(0.9), at(0.9), at(0.9, "heat")])
    assert rounds.disturbed == [None, "the clock of the GPU dropped", "the GPU was throttled: heat"]


def test_a_setting_that_nothing_takes_has_not_been_tried() -> None:
    change = Change("DL006", "fix", "Keep workers", "runtime", switches={"persistent_workers": True})
    session = Session(lambda sides: [a_run(1000.0)] * len(sides), budget_s=100.0)
    session.try_all([change])
    assert session.tried[0].verdict == "fails"
    assert "no effect" in (session.tried[0].reason or "")


def test_a_script_that_fails_without_the_change() -> None:
    failure = Failure("it ended with exit code 1", ["boom"])
    session = Session(lambda _: [failure, None], budget_s=100.0)
    session.try_all([a_change("a")])
    [row] = session.tried
    assert (row.verdict, row.output) == ("not_tried", ["boom"])
    assert row.reason == "the script without the change failed: it ended with exit code 1"


@pytest.mark.parametrize(
    ("after_us", "wanted_us", "verdict"),
    [
        ((700.0, 1300.0), 300.0, "unclear"),  # between faster and slower: a gain of a third is possible
        ((650.0, 950.0), None, "unclear"),  # noise cannot be told from a gain of 20 %
        ((950.0, 1050.0), 150.0, "unclear"),
        ((1000.0, 1000.0), 900.0, "no_gain"),  # less than a third of what was predicted, capped at half the step
        ((1000.0, 1000.0), None, "unclear"),  # two runs do not exclude a gain of 1 %
        ((1000.0,) * 12, None, "no_gain"),
    ],
)
def test_no_gain_is_only_said_if_the_interval_excludes_a_gain_that_matters(
    after_us: Sequence[float], wanted_us: float | None, verdict: str
) -> None:
    rounds = Rounds([a_run(1000.0) for _ in after_us], [a_run(us) for us in after_us], wanted_us=wanted_us)
    row = row_of(a_change("a", wanted_us), [], rounds, Expectation(None))
    assert row.verdict == verdict
    unclear = ("the runs vary too much", "too few runs, or too different ones")
    assert (row.reason or "").startswith(unclear) == (verdict == "unclear")


def test_an_unclear_row_says_which_gains_are_possible() -> None:
    rounds = Rounds([a_run(1000.0)] * 3, [a_run(us) for us in (900.0, 1000.0, 950.0)])
    row = row_of(a_change("a"), [], rounds, Expectation(None))
    assert row.low_share is not None
    assert row.high_share is not None
    assert row.low_share < 0 < row.high_share
    assert row.reason == (
        f"the runs vary too much: the gain is between {signed_percent(row.low_share)} and "
        f"{signed_percent(row.high_share)}"
    )


def test_a_large_gain_without_an_interval_says_so() -> None:
    """Both runs are far below what runs without the change take, but nobody knows how far."""
    rounds = Rounds([a_run(1000.0), a_run(1000.0)], [a_run(90.0), a_run(115.0)])
    row = row_of(a_change("a"), [], rounds, Expectation(None))
    assert (row.verdict, row.low_share) == ("keep", None)
    assert row.reason == "the change is clear, but the runs are too few or vary too much for an interval"


def test_a_gain_without_an_interval_is_unclear() -> None:
    """Runs that differ by a factor of five: the interval would reach twice the step."""
    rounds = Rounds([a_run(1000.0)] * 2, [a_run(1000.0), a_run(200.0)])
    row = row_of(a_change("a"), [], rounds, Expectation(None))
    assert (row.verdict, row.low_share, row.high_share) == ("unclear", None, None)
    assert row.reason == "too few runs, or too different ones, to tell a gain from noise: try a larger --budget"
    assert trial_words.change(row) == f"−{percent(row.gain_share)}"


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "keep"), (0.8, "trains_differently")])
def test_losses_that_drift_are_judged_by_other_seeds(factor: float, verdict: str) -> None:
    """Both changes draw other random numbers, and the second one also learns at another rate."""

    def run(sides: Sequence[Sequence[Change]], /) -> list[MeasuredRun | Failure | None]:
        return [one_run(changes) for changes in sides]

    def one_run(changes: Sequence[Change]) -> MeasuredRun:
        changed = any(change.name == "a" for change in changes)
        chance = random.Random(f"{changed} {[change.switches.get('seed', 0) for change in changes][-1:]}")  # noqa: S311
        losses = [chance.gauss(factor if changed else 1.0, 0.05) for _ in range(50)]
        return a_run(700.0 if changed else 1000.0, losses=losses)

    session = Session(run, budget_s=600.0)
    session.try_all([a_change("a")])
    assert [(row.verdict, row.losses and row.losses.verdict) for row in session.tried] == [
        (verdict, "redrawn" if verdict == "keep" else "drifts")
    ]
