#!/usr/bin/env python3
"""Measures how often `traceopt compare` is right: for runs of the same script, and of one whose steps take 5 % longer.

python benchmarks/compare_noise.py --record                    # adds runs to compare_noise.json
python benchmarks/compare_noise.py --write docs/comparing.md   # evaluates them

A round records the healthy workload on the CPU twice, and once with each step 5 % slower. If the main thread waited
for a core for a tenth of the run (PY002), the run is recorded again. Trials are drawn from these rounds.
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

import numpy as np

if __name__ == "__main__":  # run as a script: the packages are a folder above
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.marked import with_part
from fixtures.workloads.capture import environment
from fixtures.workloads.pairs import HEALTHY
from traceopt import run_script
from traceopt.analyzer.timeline.steps import typical_of
from traceopt.api import analyze
from traceopt.capture.settings import Settings, plan_cycles
from traceopt.comparison.noise import step_change
from traceopt.try_script.two_sides import is_certain
from traceopt.trying.measured_run import MeasuredRun
from traceopt.trying.rounds import Rounds

DATA = Path(__file__).with_suffix(".json")
ROUNDS = 66  # each with two runs of the healthy script and one of the slower script
STEPS = 20  # recorded per run, after 8 others
SLOWER_SHARE = 0.05
ROUND = {"healthy": (0.0, 0.0), "slower": (SLOWER_SHARE,)}
CROWDED_SHARE = 0.1  # of a run during which the main thread waited for a core
MOST_DISCARDED = 3  # per run

DRAWS = 1000
SIDES = (1, 2, 3, 5, 7, 10, 15, 20)  # runs per side

Runs = list[list[float]]


def record(path: Path, rounds: int) -> None:
    """Adds rounds to the file until it has `rounds`. Each round is written as soon as it is complete."""
    data = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"discarded": 0, "runs": {}}
    data["environment"] = {**environment(), "cores": os.cpu_count(), "threads": os.environ["OMP_NUM_THREADS"]}
    runs: dict[str, Runs] = data["runs"]
    for done in range(len(runs.get("slower", [])), rounds):
        kinds = [(kind, share) for kind, shares in ROUND.items() for share in shares]
        first = done % len(kinds)  # so that no kind always comes first
        for kind, share in (*kinds[first:], *kinds[:first]):
            steps, discarded = undisturbed(share)
            runs.setdefault(kind, []).append([round(us) for us in steps])
            data["discarded"] += discarded
        path.write_text(json.dumps(data, separators=(",", ":")) + "\n", encoding="utf-8")
        print(f"round {done + 1} of {rounds}", file=sys.stderr)


def undisturbed(slower_share: float) -> tuple[list[float], int]:
    """The recorded steps in microseconds, and how many runs were discarded before."""
    discarded = 0
    steps, crowded = capture(slower_share)
    while crowded and discarded < MOST_DISCARDED:
        discarded += 1
        steps, crowded = capture(slower_share)
    return steps, discarded


def capture(slower_share: float) -> tuple[list[float], bool]:
    """The recorded steps of a run in microseconds, and whether other programs took the cores during the run."""
    with tempfile.TemporaryDirectory() as logs:
        settings = Settings(Path(logs), plan_cycles(wait=5, warmup=3, active=STEPS), stop_after=True)
        command = HEALTHY.command("--device", "cpu", "--slower", str(slower_share))
        code, outcome = run_script.record(command, False, settings, quiet=True)
        if code or outcome.reason:
            raise RuntimeError(f"exit code {code}; {outcome.reason or 'traces were recorded'}")
        thresholds = {"PY002": {"min_share": CROWDED_SHARE}}
        result = analyze([str(trace) for trace in outcome.traces], thresholds=thresholds)
    return result.step.per_step_us, any(finding.code == "PY002" for finding in result.findings)


def typical(steps_us: list[float]) -> list[float]:
    """The steps that `traceopt compare` takes of a run."""
    steps = np.array(steps_us)
    return [float(us) for us in steps[typical_of(steps.astype(np.int64))]]


def right(runs: dict[str, Runs], of_each: int, in_turn: bool, chance: random.Random) -> tuple[bool, bool]:
    """One trial: whether two sides of the same script are within noise, and whether the slower script is detected."""
    rounds = chance.sample(range(len(runs["slower"])), of_each)
    base, same = ([runs["healthy"][2 * number + place] for number in rounds] for place in (0, 1))
    slower = [runs["slower"][number] for number in rounds]
    return (
        step_change(base, same, in_turn=in_turn).verdict == "within_noise",
        step_change(base, slower, in_turn=in_turn).verdict == "slower",
    )


def cells(runs: dict[str, Runs], of_each: int, in_turn: bool) -> list[str]:
    """What share of all draws is right."""
    chance = random.Random(of_each)  # noqa: S311
    trials = [right(runs, of_each, in_turn, chance) for _ in range(DRAWS)]
    return [f"{fmean(kind):.1%}" for kind in zip(*trials, strict=True)]


def until_certain(runs: dict[str, Runs], slower: bool, chance: random.Random) -> tuple[str, int]:
    """As `traceopt compare --against` ends: the verdict, and the pairs of runs. These are recorded one after the other;
    its own train in turns, so that a machine that slows down favors neither.
    """
    numbers = chance.sample(range(len(runs["slower"])), len(runs["slower"]))
    rounds = Rounds([], [])
    for number in numbers:
        other = runs["slower"][number] if slower else runs["healthy"][2 * number + 1]
        before, after = MeasuredRun(runs["healthy"][2 * number]), MeasuredRun(other)
        rounds = Rounds([*rounds.before, before], [*rounds.after, after])
        if is_certain(rounds, []):
            break
    return rounds.change().verdict, len(rounds.before)


def against(runs: dict[str, Runs]) -> list[str]:
    """Rows of the table: what is right, how often, and after how many pairs."""
    rows = []
    for name, slower, right in (("the same script", False, "within_noise"), ("the slower script", True, "slower")):
        chance = random.Random(int(slower))  # noqa: S311
        found = [until_certain(runs, slower, chance) for _ in range(DRAWS)]
        pairs = sorted(count for _, count in found)
        share = fmean(verdict == right for verdict, _ in found)
        rows.append(f"| {name} | {share:.1%} | {median(pairs):.0f} | {pairs[len(pairs) * 9 // 10]} |")
    return rows


def section(data: dict[str, Any]) -> str:
    """Part of docs/comparing.md."""
    runs: dict[str, Runs] = data["runs"]
    here = data["environment"]
    logs = {kind: [math.log(median(steps)) for steps in of_kind] for kind, of_kind in runs.items()}
    spread = math.sqrt(fmean(stdev(of_kind) ** 2 for of_kind in logs.values()))
    planted = math.expm1(fmean(logs["slower"]) - fmean(logs["healthy"]))
    step_ms = math.exp(fmean(logs["healthy"])) / 1e3
    rows = [
        f"| {number} | {' | '.join([*cells(runs, number, True), *cells(runs, number, False)])} |"
        for number in SIDES
        if number <= len(runs["slower"])
    ]
    rounds = len(runs["slower"])
    return f"""`fixtures/workloads/healthy.py` was recorded on the CPU in {rounds} rounds: twice as it is, and once with
each step {SLOWER_SHARE:.0%} slower. A run has {STEPS} steps of {step_ms:.0f} ms. The machine has {here["cores"]} cores,
which other programs used at times: two runs of the same script differ by {spread:.1%} (standard deviation of their
median steps).
{data["discarded"]} runs were discarded, whose main thread waited for a core for at least a tenth of the time. Over all
runs, the slower script is {planted:.1%} slower. Each cell is the share of {DRAWS:,} trials, drawn from the rounds, with
the right answer: "within noise" or "slower". "Unclear" counts as wrong. {here["machine"]}, PyTorch {here["torch"]},
OMP_NUM_THREADS={here["threads"]}.

| runs per side | same, `--in-turn` | slower, `--in-turn` | same | slower |
| ---: | ---: | ---: | ---: | ---: |
{chr(10).join(rows)}

`--against` goes on until the answer is certain. On these runs, in pairs drawn at random:

| | right | pairs, median | pairs, 9 of 10 |
| --- | ---: | ---: | ---: |
{chr(10).join(against(runs))}

Its own runs train in turns and without the profiler, so they differ less than these.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help=f"record until there are {ROUNDS} rounds of three runs")
    parser.add_argument("--write", type=Path, metavar="FILE", help="the page with the marks (default: stdout)")
    options = parser.parse_args()
    for library in ("OMP", "MKL"):  # otherwise the run measures threads that wait for cores
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    if options.record:
        record(DATA, ROUNDS)
        return
    data = json.loads(DATA.read_text(encoding="utf-8"))
    data["runs"] = {kind: [typical(steps) for steps in runs] for kind, runs in data["runs"].items()}
    text = section(data)
    if options.write:
        page = options.write.read_text(encoding="utf-8")
        options.write.write_text(with_part(page, "compare_noise.py", text), encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
