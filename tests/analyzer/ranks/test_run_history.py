"""Ranks over the whole run: planted slow ranks are found in their steps, at their price, and no others."""

from __future__ import annotations

import numpy as np
import pytest

from fixtures.run_ledgers import Run, Slow, documents
from traceopt.analyzer.ranks.rank_history import MOST_STRETCHES, rank_history
from traceopt.analyzer.ranks.run_history import RunHistory, SlowRanks, find_run_history
from traceopt.analyzer.run_log.run_settings import captured


def history_of(run: Run) -> RunHistory:
    found = find_run_history([rank_history(captured(one)) for one in documents(run)], range(run.ranks))
    assert found is not None
    return found


def only(run: Run) -> SlowRanks:
    (slow,) = history_of(run).slow
    return slow


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("waits", [False, True])
def test_ranks_that_are_alike_are_not_slow(waits: bool, seed: int) -> None:
    assert not history_of(Run(8, 2_000, waits=waits, seed=seed)).slow
    assert not history_of(Run(2, 150, waits=waits, seed=seed)).slow


def test_a_rank_is_slow_for_some_steps() -> None:
    slow = only(Run(8, 1_000, [Slow([3], 400, 900, 1.4)]))
    assert slow.ranks == [3]
    assert (slow.first_step, slow.last_step) == (400, 899)
    assert slow.ratio == pytest.approx(1.4, abs=0.02)
    assert slow.share == pytest.approx(500 * 0.4 / (500 * 1.4 + 500 + 400), rel=0.1)  # start-up takes 400 steps
    assert slow.cause is None


def test_a_rank_for_which_the_others_wait_is_late_at_its_backward_pass() -> None:
    slow = only(Run(8, 1_000, [Slow([3], 400, 900, 1.5, loads=True)], waits=True))
    assert (slow.ranks, slow.ratio, slow.cause) == ([3], None, "data")
    assert (slow.first_step, slow.last_step) == (400, 899)
    assert slow.late_ns == pytest.approx(10e6, rel=0.05)


def test_ranks_of_a_machine_are_slow_together() -> None:
    slow = only(Run(32, 600, [Slow(range(8, 16), 100, 600, 1.3)]))
    assert (slow.ranks, slow.is_node) == (list(range(8, 16)), True)
    assert not only(Run(32, 600, [Slow([9, 17], 100, 600, 1.3)])).is_node


def test_slow_ranks_come_and_go() -> None:
    planted = [Slow([1], 100, 200, 1.5), Slow([1], 400, 460, 1.5), Slow([2], 300, 350, 1.5)]
    found = history_of(Run(4, 600, planted)).slow
    assert [(one.ranks, one.first_step, one.last_step) for one in found] == [
        ([1], 100, 199),
        ([1], 400, 459),
        ([2], 300, 351),  # to the end of a stretch of four steps
    ]


def test_single_long_steps_are_no_slow_rank() -> None:
    pauses = [Slow([3], at, at + 1, 30.0) for at in range(100, 1_900, 150)]
    assert not history_of(Run(8, 2_000, pauses)).slow


def test_evaluations_of_all_ranks_and_checkpoints_of_one() -> None:
    found = history_of(Run(4, 1_000, evaluate_every=100, save_every=250, waits=True))
    (alone,) = found.slow
    assert (alone.ranks, alone.cause, alone.late_ns) == ([0], "checkpoints", None)
    assert (alone.first_step, alone.last_step) == (248, 751)
    assert (np.flatnonzero(found.save_share) * found.width).tolist() == [248, 500, 748]
    assert (found.eval_share > 0).sum() == 9


def test_a_thousand_ranks_stay_small() -> None:
    run = Run(64, 10_000, [Slow([40], 6_400, 10_000, 1.2)])
    histories = [rank_history(captured(one)) for one in documents(run)]
    assert all(one is not None and len(one.step_ns) <= MOST_STRETCHES for one in histories)
    found = history_of(run)
    assert [one.ranks for one in found.slow] == [[40]]
    assert found.at_the_end(found.slow[0])


def test_ranks_without_a_ledger_are_not_compared() -> None:
    first, *_ = (rank_history(captured(one)) for one in documents(Run(1, 100)))
    assert find_run_history([first, None], [0, 1]) is None
    assert find_run_history([first], [0]) is None
