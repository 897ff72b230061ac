"""Trials of `traceopt try`: recorded rounds are used one after the other, and judged as `try` judges."""

from __future__ import annotations

from typing import Any

from benchmarks.trials import EXPECTED, RUNS, SLOWER, Recorded, evaluation, trial
from traceopt.trying.measured_run import MeasuredRun


def rounds(gain: bool = True) -> list[dict[str, Any]]:
    """Twenty rounds on a quiet machine. `gain`: whether the change has one."""
    step_us = {"base": 1000.0, "unchanged": 1000.0, "faster": 1000.0 / (1 + SLOWER) if gain else 1000.0}
    wobble = [1.0, 1.002, 0.998, 1.001]
    return [
        {
            name: {"step_us": [us * wobble[n % 4]] * 30, "core_wait_share": 0.0, "wall_s": 3.0}
            for name, us in step_us.items()
        }
        for n in range(20)
    ]


def test_both_kinds_of_trial_on_a_quiet_machine() -> None:
    for name, verdict in EXPECTED.items():
        row, seconds = trial(rounds(), name, 18)
        assert row.verdict == verdict
        assert seconds == len(row.rounds) * 2 * 3.0


def test_a_wrong_verdict_is_counted() -> None:
    unchanged, faster = evaluation(rounds(gain=False))[-2:]
    assert "| no gain | 20 | 100% | – |" in unchanged
    assert "| keep | 0 | 0% | no gain 20 |" in faster


def test_each_run_is_used_once_in_a_trial() -> None:
    recorded = Recorded(
        [{name: {"step_us": [float(n + 1)], "core_wait_share": 0.0, "wall_s": 1.0} for name in RUNS} for n in range(3)],
        1,
    )
    runs = [run for _ in range(2) for run in recorded.run([[], []])]
    assert [run.steps_us for run in runs if isinstance(run, MeasuredRun)] == [[2.0], [3.0], [1.0], [2.0]]
