#!/usr/bin/env python3
"""Compares `traceopt tune` with an exhaustive search over the same candidates.

Ten planted trainings run on a simulated machine (half a minute). Runs have the noise of compare_noise.json, and the
best combination of all values is known. The exhaustive search takes the same course, but measures each fix and each
value until its gain is known well.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from unittest.mock import patch

from msgspec import Struct

if __name__ == "__main__":  # run as a script: the packages are two folders above
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.tune.planted import TRAININGS, Noise, SimulatedMachine, Training, recorded_noise
from traceopt.try_script.tuning import is_known
from traceopt.trying.changes import Change
from traceopt.trying.rounds import Rounds, Runner, measure
from traceopt.trying.session import Session
from traceopt.trying.tuning import course

BUDGET_S, EXHAUSTIVE_S = 1800.0, 8 * 3600.0  # the default, and enough for every value
LONGEST_S = 300.0  # for one change, as with the default budget
TRIALS = 20
MOST_PAIRS = 15  # of runs of a value: noise may never let it be settled
ORIGINAL = Change("original", "revision", "the script as it was", "revision")


class Tuned(Struct, frozen=True):
    """How many times as fast the training is, without noise, and the runs that found it."""

    speedup: float
    runs: int


def tuned(
    training: Training, noise: Noise, seed: int, enough: Callable[[Rounds], bool], budget_s: float = BUDGET_S
) -> Tuned:
    machine = SimulatedMachine(training, noise, random.Random(seed))  # noqa: S311
    session = Session(
        machine,
        budget_s=budget_s,
        longest_s=LONGEST_S,
        run_steps=training.run_steps,
        enough=enough,
        clock=lambda: machine.now_s,
    )
    course.tune(session, machine, lambda _: training.plan(session.kept), list, [], ORIGINAL)
    return Tuned(training.mean_us([]) / training.mean_us(session.kept), machine.runs)


def each_measured(
    run: Runner[Sequence[Change]],
    base: Sequence[Change],
    values: Sequence[Change],
    time_left: Callable[[], float],
    run_steps: int | None = None,
    failed: Callable[[str], None] = lambda _: None,  # noqa: ARG001
) -> Change | None:
    """Instead of successive halving: every value is measured like any other change."""
    best, best_share = None, 0.0
    for value in values:
        rounds = measure(
            run,
            base,
            [*base, value],
            wanted_us=lambda _: None,
            time_left=time_left,
            enough=lambda rounds: rounds.settled or len(rounds.before) >= MOST_PAIRS,
        )
        if rounds.failed is None and rounds.before:
            before, after = (fmean(one.mean_us(run_steps) for one in side) for side in (rounds.before, rounds.after))
            if after / before - 1 < best_share:
                best, best_share = value, after / before - 1
    return best


def combinations(training: Training) -> list[list[Change]]:
    """Of all fixes and of one value, or none, of each search."""
    changes: dict[str, list[list[Change]]] = {}
    fixes: list[Change] = []
    for _ in training.fixes:  # those that show only after others
        plan = training.plan(fixes)
        fixes += plan.changes
    for fix in fixes:
        changes[fix.name] = [[], [fix]]
    for search in training.plan([]).searches:
        changes[search.name] = [[], *([value] for value in search.values)]
    return [list(itertools.chain(*chosen)) for chosen in itertools.product(*changes.values())]


def simulated(trials: int) -> None:
    noise = recorded_noise()
    print("| training | combinations | best | reached | at least | runs | exhaustive reaches | runs | share of runs |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for training in TRAININGS:
        every = combinations(training)
        best = training.mean_us([]) / min(map(training.mean_us, every))
        found = [tuned(training, noise, seed, is_known) for seed in range(trials)]
        with patch.object(course, "best_of", each_measured):
            each = [tuned(training, noise, seed, lambda rounds: rounds.settled, EXHAUSTIVE_S) for seed in range(trials)]
        reached, runs = [one.speedup / best for one in found], fmean(one.runs for one in found)
        exhaustive = fmean(one.speedup / best for one in each), fmean(one.runs for one in each)
        print(
            f"| {training.name} | {len(every):,} | {best:.2f} | {fmean(reached):.1%} | {min(reached):.1%} | {runs:.0f} "
            f"| {exhaustive[0]:.1%} | {exhaustive[1]:.0f} | {runs / exhaustive[1]:.0%} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=TRIALS, help="tunings of each planted training")
    simulated(parser.parse_args().trials)


if __name__ == "__main__":
    main()
