#!/usr/bin/env python3
"""Measures how often `traceopt try` is right: for a change that does nothing, and for one that gains 5 %.

python benchmarks/trials.py --record             # adds rounds to trials.json
python benchmarks/trials.py                      # evaluates them, for docs/trying-fixes.md

The script is the healthy workload with each step slower than it has to be. A round has three runs of it: as it is, as
it is once more, and without the delay. A trial begins at one of the recorded rounds and uses those after it, and after
the last one the first, so trials share rounds. It ends as `traceopt try` does: when the answer is settled, or its time
is over.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

if __name__ == "__main__":  # run as a script: the packages are a folder above
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fixtures.workloads.capture import environment
from fixtures.workloads.pairs import FOLDER, HEALTHY
from traceopt.result.trial import TriedChange
from traceopt.trying.changes import Change, Prediction
from traceopt.trying.measured_run import Failure, MeasuredRun
from traceopt.trying.running.interruption import Interruption
from traceopt.trying.session import Session
from traceopt.trying.timed_runs import Limits, TimedRuns
from traceopt.trying.workspace import Command, Workspace

DATA = Path(__file__).with_suffix(".json")
ROUNDS = 100
TRIALS = 20
GAIN_SHARE = 0.05
SLOWER = GAIN_SHARE / (1 - GAIN_SHARE)  # of the healthy step
RUNS = {"base": SLOWER, "unchanged": SLOWER, "faster": 0.0}
EXPECTED = {"unchanged": "no_gain", "faster": "keep"}
SETTLE_STEPS = 5
STEPS = 65  # of a run, as `try` chooses for a step of 80 ms
TIME_LIMIT_S = 300.0  # of a run
BUDGET_S = 600.0  # the default of traceopt try

Run = dict[str, Any]
Round = dict[str, Run]  # by the names in RUNS


def record(path: Path, rounds: int) -> None:
    """Adds rounds to the file until it has `rounds`. Each round is written as soon as it is complete."""
    limits = Limits(STEPS, SETTLE_STEPS, TIME_LIMIT_S)
    words = (str(HEALTHY.script), "--steps", str(STEPS + 1))
    changes = {name: Change(name, "arguments", name, "arguments", arguments=words_of(name)) for name in RUNS}
    with (
        tempfile.TemporaryDirectory() as logs,
        Interruption() as interruption,
        Workspace(Command(words, False, FOLDER), Path(logs), interruption) as workspace,
    ):
        runs = TimedRuns(workspace, limits)
        while True:
            data = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"rounds": []}
            known: list[Round] = data["rounds"]
            if len(known) >= rounds:
                return
            names = list(RUNS) if len(known) % 2 == 0 else list(RUNS)[::-1]
            known.append(measured(runs, {name: changes[name] for name in names}))
            data["environment"] = {**environment(), "threads": os.environ["OMP_NUM_THREADS"]}
            path.write_text(json.dumps(data) + "\n", encoding="utf-8")


def words_of(name: str) -> tuple[str, ...]:
    return ("--slower", str(RUNS[name]))


def measured(runs: TimedRuns, changes: Mapping[str, Change]) -> Round:
    """`wall_s` is the time of a run in turns: a third of the round. Raises SystemExit if the script fails."""
    began = time.monotonic()
    round_: Round = {}
    for name, run in zip(changes, runs([[change] for change in changes.values()]), strict=True):
        if isinstance(run, Failure):
            sys.exit(f"{HEALTHY.name}: {run.reason}")
        if run is not None:
            step_us = [round(us, 1) for us in run.steps_us]
            round_[name] = {"step_us": step_us, "core_wait_share": run.core_wait_share}
    wall_s = round((time.monotonic() - began) / len(changes), 2)
    return {name: {**run, "wall_s": wall_s} for name, run in round_.items()}


class Recorded:
    """Gives the recorded runs instead of new ones, from one round on."""

    def __init__(self, rounds: Sequence[Round], first: int) -> None:
        self._rounds = rounds
        self._next = dict.fromkeys(RUNS, first)
        self.now_s = 0.0

    def run(self, sides: Sequence[Sequence[Change]], /) -> list[MeasuredRun | Failure | None]:
        return [self._run(changes) for changes in sides]

    def _run(self, changes: Sequence[Change]) -> MeasuredRun:
        name = changes[0].name if changes else "base"
        run = self._rounds[self._next[name] % len(self._rounds)][name]
        self._next[name] += 1
        self.now_s += run["wall_s"]
        return MeasuredRun(run["step_us"], core_wait_share=run["core_wait_share"])


def trial(rounds: Sequence[Round], name: str, first: int) -> tuple[TriedChange, float]:
    """The row of the change, and the seconds that it took. Both kinds of trial predict the 5 %, so that they end by the
    same rule.
    """
    gain_us = GAIN_SHARE * fmean(rounds[first]["base"]["step_us"])
    change = Change(name, "arguments", name, "arguments", alone=Prediction(gain_us, gain_us, gain_us))
    recorded = Recorded(rounds, first)
    session = Session(recorded.run, budget_s=BUDGET_S, clock=lambda: recorded.now_s)
    session.try_all([change])
    return session.tried[0], recorded.now_s


def evaluation(rounds: Sequence[Round]) -> list[str]:
    """The lines of the table."""
    base = [fmean(round_["base"]["step_us"]) for round_ in rounds]
    again = [fmean(round_["unchanged"]["step_us"]) for round_ in rounds]
    noise = stdev([after / before - 1 for before, after in zip(base, again, strict=True)])
    rows = [
        f"{len(rounds)} rounds: a step takes {fmean(base) / 1e3:.1f} ms; two runs of a round differ by {noise:.1%}",
        "",
        "| change | right answer | of 20 trials | of all | other answers | minutes |",
        "| --- | --- | ---: | ---: | --- | ---: |",
    ]
    for name, expected in EXPECTED.items():
        trials = [trial(rounds, name, first) for first in range(len(rounds))]
        right = [row.verdict == expected for row, _ in trials]
        spaced = [right[index * len(right) // TRIALS] for index in range(TRIALS)]
        others = Counter(row.verdict for row, _ in trials if row.verdict != expected)
        minutes = median(seconds for _, seconds in trials) / 60
        rows.append(
            f"| {name} | {expected.replace('_', ' ')} | {sum(spaced)} | {fmean(right):.0%} "
            f"| {', '.join(map(_counted, others.items())) or '–'} | {minutes:.1f} |"
        )
    return rows


def _counted(of: tuple[str, int]) -> str:
    return f"{of[0].replace('_', ' ')} {of[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default: {ROUNDS}")
    parser.add_argument("--data", type=Path, default=DATA, metavar="FILE")
    options = parser.parse_args()
    if options.record:
        for library in ("OMP", "MKL"):  # otherwise the run measures threads that wait for cores
            os.environ.setdefault(f"{library}_NUM_THREADS", "1")
        record(options.data, options.rounds)
        return
    print("\n".join(evaluation(json.loads(options.data.read_text(encoding="utf-8"))["rounds"])))


if __name__ == "__main__":
    main()
