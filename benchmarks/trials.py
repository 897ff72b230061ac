#!/usr/bin/env python3
"""Measures how often `traceopt try` is right: for a change that does nothing, and for one that gains 5 %.

python benchmarks/trials.py                # 20 trials of each, in benchmarks/trials.json
python benchmarks/trials.py --trials 3

The script is the healthy workload with each step 5 % slower than it has to be. The change is its own arguments again,
or the argument that takes the delay away. Run it on a quiet machine; a trial takes as long as `traceopt try` does.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

if __name__ == "__main__":  # run as a script: the packages are a folder above
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fixtures.workloads.capture import environment
from fixtures.workloads.pairs import FOLDER, HEALTHY
from traceopt.result.trial import TriedChange
from traceopt.trying.changes import Change, Prediction
from traceopt.trying.interruption import Interruption
from traceopt.trying.measured_run import MeasuredRun
from traceopt.trying.session import Session
from traceopt.trying.workspace import Command, Limits, Workspace

DATA = Path(__file__).with_suffix(".json")
TRIALS = 20
GAIN_SHARE = 0.05
SLOWER = GAIN_SHARE / (1 - GAIN_SHARE)  # of the healthy step
CHANGES = {"unchanged": ("--slower", str(SLOWER)), "faster": ("--slower", "0")}
EXPECTED = {"unchanged": "no_gain", "faster": "keep"}
LIMITS = Limits(steps=105, settle=5, time_limit_s=300.0)
BUDGET_S = 600.0  # the default of traceopt try


def trial(workspace: Workspace, name: str, step_us: float) -> TriedChange:
    """Both kinds of trial predict the 5 %, so that they have the same rule for when to stop."""
    predicted = Prediction(GAIN_SHARE * step_us, GAIN_SHARE * step_us, GAIN_SHARE * step_us)
    change = Change(name, "arguments", name, "arguments", arguments=CHANGES[name], alone=predicted)
    session = Session(lambda changes: workspace.measure(changes, LIMITS), budget_s=BUDGET_S)
    session.try_all([change])
    return session.tried[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=TRIALS, help=f"of each kind; default: {TRIALS}")
    parser.add_argument("--out", type=Path, default=DATA, metavar="FILE")
    options = parser.parse_args()
    for library in ("OMP", "MKL"):  # otherwise the run measures threads that wait for cores
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    words = (str(HEALTHY.script), "--steps", str(LIMITS.steps + 1), "--slower", str(SLOWER))
    found: dict[str, list[dict[str, object]]] = {name: [] for name in CHANGES}
    with (
        tempfile.TemporaryDirectory() as logs,
        Interruption() as interruption,
        Workspace(Command(words, False, FOLDER), Path(logs), interruption) as workspace,
    ):
        first = workspace.measure([], LIMITS)
        if not isinstance(first, MeasuredRun):
            sys.exit(f"{HEALTHY.name}: {first.reason}")
        for number in range(options.trials):
            for name in CHANGES:
                row = trial(workspace, name, first.step_us)
                interval = (row.low_share, row.gain_share, row.high_share)
                found[name].append({"verdict": row.verdict, "gain": interval, "rounds": len(row.rounds)})
                print(f"{number + 1} {name}: {json.dumps(found[name][-1])}", file=sys.stderr)
                text = json.dumps({"environment": environment(), "trials": found}, indent=1)
                options.out.write_text(text + "\n", encoding="utf-8")
    for name, trials in found.items():
        right = Counter(one["verdict"] for one in trials)[EXPECTED[name]]
        print(f"{name}: {EXPECTED[name]} in {right} of {len(trials)}")


if __name__ == "__main__":
    main()
