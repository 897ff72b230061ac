#!/usr/bin/env python3
"""How often `traceopt compare` is right: captures of the same script, and of one whose steps take 5 % longer.

python benchmarks/compare_noise.py --record                             # writes compare_noise.json beside this file
python benchmarks/compare_noise.py --write docs/compare-accuracy.md     # judges what it holds

Each trial records three sides in turn, run by run: the healthy workload, the same again, and the same with each step
5 % slower. A run whose training thread waited for a core for a tenth of the time is recorded again, as PY002 says.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":  # run as a script: the packages are a folder above
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fixtures.workloads.capture import environment
from fixtures.workloads.pairs import HEALTHY
from traceopt import running
from traceopt.api import analyze
from traceopt.capture.settings import Settings, plan_cycles

DATA = Path(__file__).with_suffix(".json")
TRIALS = 20
RUNS = 7  # of each side in a trial
STEPS = 20  # recorded of a run, after 8 others
SLOWER_SHARE = 0.05
SIDES = {"base": 0.0, "same": 0.0, "slower": SLOWER_SHARE}
CROWDED_SHARE = 0.1  # of a run, in which the training thread waited for a core
MOST_THROWN_AWAY = 3  # for one run

Trial = dict[str, list[list[float]]]


def record(path: Path, trials: int, runs: int) -> None:
    """Adds trials to the file until it has so many; each is written when it is complete."""
    held = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"trials": [], "disturbed": 0}
    while len(held["trials"]) < trials:
        trial: Trial = {side: [] for side in SIDES}
        for run in range(runs):
            turn = run % len(SIDES)  # none is always the first
            for side in (*list(SIDES)[turn:], *list(SIDES)[:turn]):
                steps, again = undisturbed(SIDES[side])
                trial[side].append(steps)
                held["disturbed"] += again
        held["trials"].append(trial)
        held["environment"] = {**environment(), "cores": os.cpu_count(), "threads": os.environ["OMP_NUM_THREADS"]}
        path.write_text(json.dumps(held) + "\n", encoding="utf-8")
        print(f"trial {len(held['trials'])} of {trials}", file=sys.stderr)


def undisturbed(slower_share: float) -> tuple[list[float], int]:
    """The recorded steps in microseconds, and how many runs were thrown away for them."""
    thrown_away = 0
    steps, crowded = capture(slower_share)
    while crowded and thrown_away < MOST_THROWN_AWAY:
        thrown_away += 1
        steps, crowded = capture(slower_share)
    return steps, thrown_away


def capture(slower_share: float) -> tuple[list[float], bool]:
    """A run's recorded steps, and whether other programs took the cores meanwhile."""
    with tempfile.TemporaryDirectory() as logs:
        settings = Settings(Path(logs), plan_cycles(wait=5, warmup=3, active=STEPS), stop_after=True)
        command = HEALTHY.command("--device", "cpu", "--slower", str(slower_share))
        code, outcome = running.record(command, False, settings, quiet=True)
        if code or outcome.reason:
            raise RuntimeError(f"exit code {code}; {outcome.reason or 'traces were recorded'}")
        thresholds = {"PY002": {"min_share": CROWDED_SHARE}}
        result = analyze([str(trace) for trace in outcome.traces], thresholds=thresholds)
    return result.step.per_step_us, any(finding.code == "PY002" for finding in result.findings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help=f"record what is missing of {TRIALS} trials")
    parser.add_argument("--write", type=Path, metavar="FILE", help="the page to write (default: stdout)")
    options = parser.parse_args()
    for library in ("OMP", "MKL"):  # threads that wait for cores would be measured, not the steps
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    if options.record:
        record(DATA, TRIALS, RUNS)


if __name__ == "__main__":
    main()
