#!/usr/bin/env python3
"""Predicts and measures what the fixes of the workloads save on this machine.

python benchmarks/savings/measure.py                                        # writes cpu.json next to this file
python benchmarks/savings/measure.py --out benchmarks/savings/h200.json     # on a machine with such a GPU
python benchmarks/savings/page.py                                           # docs/accuracy.md, from all of them

For each pair that the machine can run, the plain variant is recorded and analyzed; the prediction comes from its trace
alone. Both variants are measured without a profiler, in the steps before the recording. A round measures both, one
after the other; a pass over all pairs makes one round of each, so that a busy minute spoils one round of a pair and not
all of them. A round counts if others took less than a twentieth of a core from the cores that this program may use
(`taskset` limits them). If the counted rounds of a pair vary by more than 5 %, they are all discarded and measured
again later.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

if __name__ == "__main__":  # run as a script: the packages are two folders above
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fixtures.workloads.capture import environment, record
from fixtures.workloads.pairs import PAIRS, Pair
from traceopt.api import analyze
from traceopt.result.document import Result

LARGEST_BYTES = 1 << 30  # limit for the traces of a pair; they are discarded

ROUNDS = 5  # that count, for each pair
BUSY_SHARE = 0.05  # of a core: a round in which others took more does not count
MOST_NOISE = 0.05  # of a step: half the range of its rounds

Row = dict[str, Any]


def measured_round(pair: Pair, fixed_first: bool) -> Row:
    """One round of a pair: both steps in milliseconds, and the saving that the plain trace predicts.

    `busy_elsewhere` is the CPU time that others took during either variant, as a share of one core; None if the system
    does not say. `core_wait`: how long the main thread was ready but had no core, as a share of the run.
    """
    row: Row = {"busy_elsewhere": None}
    with tempfile.TemporaryDirectory() as folder:
        for variant in ("fixed", "plain") if fixed_first else ("plain", "fixed"):
            began, before = time.monotonic(), _others()
            recorded = record(pair, variant, Path(folder) / variant, LARGEST_BYTES)
            after = _others()
            if before is not None and after is not None:
                busy = _busy_s(before, after) / (time.monotonic() - began)
                row["busy_elsewhere"] = round(max(busy, row["busy_elsewhere"] or 0.0), 3)
            row |= {f"{variant}_ms": recorded["step_us"] / 1e3, f"{variant}_core_wait": recorded["core_wait_share"]}
        result = analyze(str(Path(folder) / "plain"))
        if pair.second:
            result = analyze(str(Path(folder) / "plain"), select=[*pair.codes, *pair.second])
    return {**row, **prediction(result, pair)}


def _others() -> dict[int, float] | None:
    """CPU time so far, in seconds, of all other programs that may run on the cores of this program, with the programs
    that they started and that have ended, by process; under 0, what other machines on the same host took from these
    cores. None if the system does not say (it is not Linux).
    """
    mine, own = os.sched_getaffinity(0), os.getpid()
    tick = os.sysconf("SC_CLK_TCK")
    found: dict[int, float] = {}
    try:
        cores = (line.split() for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu"))
        found[0] = sum(int(row[8]) for row in cores if row[0] in {f"cpu{core}" for core in mine}) / tick
    except (OSError, ValueError, IndexError):
        return None
    for process in (int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
        try:
            if process != own and mine & os.sched_getaffinity(process):
                fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
                found[process] = sum(map(int, fields[11:15])) / tick  # utime, stime, cutime, cstime
        except OSError:  # it has ended
            continue
    return found


def _busy_s(before: dict[int, float], after: dict[int, float]) -> float:
    """CPU time that others took in between. The measured programs start after `before`, so they do not count."""
    return sum(max(0.0, after.get(process, spent) - spent) for process, spent in before.items())


def noise(rounds: list[Row]) -> float:
    """Half the range of the rounds as a share of their median, of the variant that varies more."""
    steps = [[row[f"{variant}_ms"] for row in rounds] for variant in ("plain", "fixed")]
    return max((max(times) - min(times)) / 2 / median(times) for times in steps)


def prediction(result: Result, pair: Pair) -> Row:
    """The predicted saving per step, from the most valuable finding of the planted kind, or else of a general kind.

    If two bottlenecks are planted, from both findings together. Empty if no such finding exists.
    """
    if pair.second:
        both = result.combined
        found = both is not None and {*both.codes} & {*pair.codes} and {*both.codes} & {*pair.second}
        return {"code": " + ".join(both.codes), "saving_ms": both.saving_us / 1e3} if both and found else {}
    found = [
        f for codes in (pair.codes, pair.also) for f in result.findings if f.code in codes and f.saving is not None
    ]
    finding = found[0] if found else None
    return {"code": finding.code, "saving_ms": finding.saving.est_us / 1e3} if finding and finding.saving else {}


def able(gpus: int) -> list[Pair]:
    """The pairs that a machine with this number of GPUs can run."""
    return [pair for pair in PAIRS if gpus >= pair.ranks or (pair.on_cpu and not gpus)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these pairs; default: all")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("cpu.json"), metavar="FILE")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"that count, for each pair; default: {ROUNDS}")
    parser.add_argument("--minutes", type=float, default=60.0, help="start no pair after this time (default: 60)")
    options = parser.parse_args()
    for library in ("OMP", "MKL"):  # otherwise the run measures threads that wait for cores
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    until = time.monotonic() + 60 * options.minutes
    here = {**environment(), "cores": len(os.sched_getaffinity(0)), "threads": os.environ["OMP_NUM_THREADS"]}
    pairs = [pair for pair in able(len(here["gpus"])) if not options.names or pair.name in options.names]
    rounds: dict[str, list[Row]] = {pair.name: [] for pair in pairs}
    discarded = dict.fromkeys(rounds, 0)
    fixed_first = False
    while left := [pair for pair in pairs if len(rounds[pair.name]) < options.rounds]:
        for pair in left:
            if time.monotonic() > until:
                return
            try:
                row = measured_round(pair, fixed_first)
            except RuntimeError as error:
                print(f"{pair.name}: {error}", file=sys.stderr)
                pairs.remove(pair)
                continue
            mine = rounds[pair.name]
            if (row["busy_elsewhere"] or 0.0) < BUSY_SHARE:
                mine.append(row)
            else:
                discarded[pair.name] += 1
            if len(mine) == options.rounds and noise(mine) > MOST_NOISE:
                discarded[pair.name] += len(mine)
                mine.clear()
            print(f"{pair.name}: {json.dumps(row)}", file=sys.stderr)
            measured = {name: {"rounds": found, "discarded": discarded[name]} for name, found in rounds.items()}
            text = json.dumps({"environment": here, "pairs": measured}, indent=1)
            options.out.write_text(text + "\n", encoding="utf-8")
        fixed_first = not fixed_first


if __name__ == "__main__":
    main()
