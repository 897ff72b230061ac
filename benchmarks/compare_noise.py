#!/usr/bin/env python3
"""How often `traceopt compare` is right: runs of the same script, and of one whose steps take 5 % longer.

python benchmarks/compare_noise.py --record                           # adds runs to compare_noise.json
python benchmarks/compare_noise.py --write docs/compare-accuracy.md   # judges them

A turn records the healthy workload twice, on the CPU, and once with each step 5 % slower. A run whose training thread
waited for a core for a tenth of the time is recorded again, as PY002 says. Trials are drawn from these turns.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import tempfile
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

if __name__ == "__main__":  # run as a script: the packages are a folder above
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fixtures.workloads.capture import environment
from fixtures.workloads.pairs import HEALTHY
from traceopt import run_script
from traceopt.api import analyze
from traceopt.capture.settings import Settings, plan_cycles
from traceopt.comparison.noise import step_change

DATA = Path(__file__).with_suffix(".json")
TURNS = 66  # each with two runs of the healthy script and one of the slower
STEPS = 20  # recorded of a run, after 8 others
SLOWER_SHARE = 0.05
TURN = {"healthy": (0.0, 0.0), "slower": (SLOWER_SHARE,)}
CROWDED_SHARE = 0.1  # of a run, in which the training thread waited for a core
MOST_THROWN_AWAY = 3  # for one run

TRIALS = 20
DRAWS = 1000  # for the rates
SIDES = (1, 2, 3, 5, 7, 10, 15, 20)  # runs of each

Runs = list[list[float]]


def record(path: Path, turns: int) -> None:
    """Adds turns to the file until it has so many; each is written when it is complete."""
    held = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"thrown_away": 0, "runs": {}}
    held["environment"] = {**environment(), "cores": os.cpu_count(), "threads": os.environ["OMP_NUM_THREADS"]}
    runs: dict[str, Runs] = held["runs"]
    for done in range(len(runs.get("slower", [])), turns):
        kinds = [(kind, share) for kind, shares in TURN.items() for share in shares]
        first = done % len(kinds)  # none is always the first
        for kind, share in (*kinds[first:], *kinds[:first]):
            steps, thrown_away = undisturbed(share)
            runs.setdefault(kind, []).append([round(us) for us in steps])
            held["thrown_away"] += thrown_away
        path.write_text(json.dumps(held, separators=(",", ":")) + "\n", encoding="utf-8")
        print(f"turn {done + 1} of {turns}", file=sys.stderr)


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
        code, outcome = run_script.record(command, False, settings, quiet=True)
        if code or outcome.reason:
            raise RuntimeError(f"exit code {code}; {outcome.reason or 'traces were recorded'}")
        thresholds = {"PY002": {"min_share": CROWDED_SHARE}}
        result = analyze([str(trace) for trace in outcome.traces], thresholds=thresholds)
    return result.step.per_step_us, any(finding.code == "PY002" for finding in result.findings)


def right(runs: dict[str, Runs], of_each: int, in_turn: bool, chance: random.Random) -> tuple[bool, bool]:
    """One trial: whether two sides of the same script are within noise, and whether the slower one is found."""
    turns = chance.sample(range(len(runs["slower"])), of_each)
    base, same = ([runs["healthy"][2 * turn + place] for turn in turns] for place in (0, 1))
    slower = [runs["slower"][turn] for turn in turns]
    return (
        step_change(base, same, in_turn=in_turn).verdict == "within_noise",
        step_change(base, slower, in_turn=in_turn).verdict == "slower",
    )


def cells(runs: dict[str, Runs], of_each: int, in_turn: bool) -> list[str]:
    """How many of the trials are right, and of the draws: "20 of 20, 99.1%"."""
    chance = random.Random(of_each)  # noqa: S311
    trials = [right(runs, of_each, in_turn, chance) for _ in range(DRAWS)]
    return [f"{sum(kind[:TRIALS])} of {TRIALS}, {fmean(kind):.1%}" for kind in zip(*trials, strict=True)]


def page(held: dict[str, Any]) -> str:
    runs: dict[str, Runs] = held["runs"]
    here = held["environment"]
    logs = {kind: [math.log(median(steps)) for steps in of_kind] for kind, of_kind in runs.items()}
    spread = math.sqrt(fmean(stdev(of_kind) ** 2 for of_kind in logs.values()))
    planted = math.expm1(fmean(logs["slower"]) - fmean(logs["healthy"]))
    step_ms = math.exp(fmean(logs["healthy"])) / 1e3
    rows = [
        f"| {number} | {' | '.join([*cells(runs, number, True), *cells(runs, number, False)])} |"
        for number in SIDES
        if number <= len(runs["slower"])
    ]
    return f"""# How often a comparison is right

Written by `python benchmarks/compare_noise.py --write docs/compare-accuracy.md`; do not edit.

`fixtures/workloads/healthy.py`, a small GPT, was recorded in {len(runs["slower"])} turns: twice as it is, and once with
each step {SLOWER_SHARE:.0%} slower (`--slower {SLOWER_SHARE}`), {STEPS} steps of {step_ms:.0f} ms in each run.
{held["thrown_away"]} runs were thrown away: their training thread waited for a core for a tenth of the time or more.

Runs of the same script differ by {spread:.1%} (standard deviation of their median steps): the machine has
{here["cores"]} cores, and other work on them came and went. Over all runs the slower script is {planted:.1%} slower.

A trial takes some of the turns at random, so trials share runs. It is right about the same script if it says that the
two sides are within noise, and about the slower one if it says so. The first {TRIALS} trials, and of {DRAWS:,}:

| runs a side | same, in turn | slower, in turn | same | slower |
| ---: | ---: | ---: | ---: | ---: |
{chr(10).join(rows)}

In turn: with `--in-turn`, which compares pairs. What this means for your own runs is in [comparing runs](comparing.md).

{here["machine"]}, PyTorch {here["torch"]}, OMP_NUM_THREADS={here["threads"]}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help=f"record what is missing of {TURNS} turns of three runs")
    parser.add_argument("--write", type=Path, metavar="FILE", help="the page to write (default: stdout)")
    options = parser.parse_args()
    for library in ("OMP", "MKL"):  # threads that wait for cores would be measured, not the steps
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    if options.record:
        record(DATA, TURNS)
        return
    text = page(json.loads(DATA.read_text(encoding="utf-8")))
    if options.write:
        options.write.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
