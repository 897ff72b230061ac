#!/usr/bin/env python3
"""Predicts and measures what the fixes of the workloads save on this machine.

python benchmarks/savings/measure.py                                        # writes cpu.json next to this file
python benchmarks/savings/measure.py slow_loader tiny_kernels               # measures only these pairs again
python benchmarks/savings/measure.py --out benchmarks/savings/h200.json     # on a machine with such a GPU
python benchmarks/savings/page.py                                           # docs/accuracy.md, from all of them

This is `traceopt try` on each pair that the machine can run: the plain variant is recorded and analyzed, and the
prediction comes from its trace and from the experiments that the findings ask for, as after `traceopt run`. The
prediction of the trace alone is kept beside it. If the recorded step and the measured one differ, the prediction is
the same share of the measured step, as in `traceopt try`. The change that is tried is the argument `--fixed`. Both
variants are measured in alternating runs without a profiler, in at least five rounds, until the interval of the change
is narrow enough. A round in which other programs held the cores, or the clock of the GPU dropped, does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # run as a script: the packages are two folders above
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fixtures.workloads import capture
from fixtures.workloads.capture import environment
from fixtures.workloads.pairs import FOLDER, PAIRS, Pair
from traceopt.api import analyze
from traceopt.capture.settings import Settings
from traceopt.errors import TraceoptError
from traceopt.measuring.for_document import comparisons_of, measured, place_beside, write
from traceopt.result.comparison import StepChange
from traceopt.result.document import Result
from traceopt.trying.changes import Change, Prediction
from traceopt.trying.expectation import expectation, recording_of
from traceopt.trying.rounds import Rounds, measure
from traceopt.trying.running.interruption import Interruption
from traceopt.trying.timed_runs import Limits, TimedRuns
from traceopt.trying.workspace import Command, Workspace

ROUNDS = 5  # that count, for each pair
TIME_LIMIT_S = 300.0  # of a run
EXPERIMENTS_S = 20.0  # as in `traceopt run`
LIMITS = Limits(capture.SETTLE + capture.BARE, capture.SETTLE, TIME_LIMIT_S)
MOST_NOISE = 0.05  # of the step: half the interval of the change

Row = dict[str, Any]


def with_experiments(paths: list[str], select: Sequence[str]) -> list[Result]:
    """The recording analyzed without and with what this machine answers. `select`: only these rules, if any."""
    before = analyze(paths, select=select)
    if not comparisons_of(before):
        return [before, before]
    rates = place_beside(before)
    write(rates, measured(before, EXPERIMENTS_S, again=True))
    return [before, analyze([*paths, str(rates)], select=select)]


def tried_pair(pair: Pair, minutes: float) -> tuple[list[Result], Rounds]:
    """The analyses of the recording of the plain script, and the rounds of both variants.

    Raises RuntimeError if the script fails or nothing is recorded.
    """
    words = pair.command("--steps", str(capture.STEPS))
    with (
        tempfile.TemporaryDirectory() as logs,
        Interruption() as interruption,
        Workspace(Command(tuple(words), False, FOLDER), Path(logs), interruption) as workspace,
    ):
        recorded, failed = workspace.record(Settings(Path(logs), capture.CYCLES, stop_after=True), TIME_LIMIT_S)
        if failed is not None or not recorded.traces:
            raise RuntimeError(failed.reason if failed is not None else recorded.reason)
        select = [*pair.codes, *pair.second] if pair.second else []  # of two faults together, no third fix counts
        results = with_experiments(list(map(str, recorded.traces)), select)
        found, recording = found_of(results[-1], pair), recording_of(results[-1])
        fixed = Change("fixed", "arguments", pair.planted, "arguments", arguments=("--fixed",))
        until = time.monotonic() + 60 * minutes
        rounds = measure(
            TimedRuns(workspace, LIMITS),
            [],
            [fixed],
            wanted_us=lambda before: expectation(found[1] if found else None, recording, before).us,
            time_left=lambda: until - time.monotonic(),
            least_rounds=ROUNDS,
            widest_share=2 * MOST_NOISE,
        )
    if rounds.failed is not None:
        raise RuntimeError(rounds.failed[1].reason)
    return results, rounds


def predicted(result: Result, pair: Pair, rounds: Rounds) -> Row:
    """The prediction for the step that the rounds measured, as a row; empty without one."""
    found = found_of(result, pair)
    if found is None:
        return {}
    expected = expectation(found[1], recording_of(result), rounds.counted_before).prediction
    return saving_row(found[0], expected) if expected else {}


def measured_pair(pair: Pair, minutes: float) -> Row:
    """`rounds` that count, each with both steps in ms and the predicted saving; how many were `discarded`; and `noise`,
    half the interval of the change as a share of the plain step, null if the rounds cannot give one. `trace_alone`: the
    saving by the trace alone, as a share of the saving with experiments; null if one of them is not known.
    """
    results, rounds = tried_pair(pair, minutes)
    alone, shown = (predicted(result, pair, rounds) for result in results)
    rows = [{"plain_ms": row.before_us / 1e3, "fixed_ms": row.after_us / 1e3, **shown} for row in rounds.rows()]
    counted = [] if rounds.busy else [rows[index] for index in rounds.counted]
    return {
        "rounds": counted,
        "discarded": len(rows) - len(counted),
        "noise": noise(rounds.change()),
        "trace_alone": round(alone["saving_ms"] / shown["saving_ms"], 4) if alone and shown else None,
    }


def noise(change: StepChange) -> float | None:
    """Half the interval of the change that `traceopt try` states, as a share of the plain step."""
    if change.low_share is None or change.high_share is None:
        return None
    return round((change.high_share - change.low_share) / 2, 4)


def found_of(result: Result, pair: Pair) -> tuple[str, Prediction] | None:
    """The rule and the predicted saving of the most valuable finding of the planted kind, or else of a general kind.

    If two bottlenecks are planted, of both findings together. None if no such finding exists.
    """
    if pair.second:
        both = result.combined
        if both is None or not {*both.codes} & {*pair.codes} or not {*both.codes} & {*pair.second}:
            return None
        return " + ".join(both.codes), Prediction(both.saving_us, both.saving_us, both.saving_us)
    for code in (pair.codes, pair.also):
        for finding in result.findings:
            if finding.code in code and finding.saving is not None:
                saving = finding.saving
                return finding.code, Prediction(saving.est_us, saving.low_us, saving.high_us)
    return None


def saving_row(code: str, predicted: Prediction) -> Row:
    return {
        "code": code,
        "saving_ms": predicted.us / 1e3,
        "low_ms": predicted.low_us / 1e3,
        "high_ms": predicted.high_us / 1e3,
    }


def use_one_thread() -> None:
    """Unless the user chose: otherwise a run measures threads that wait for cores."""
    for library in ("OMP", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")


def able(gpus: int) -> list[Pair]:
    """The pairs that a machine with this number of GPUs can run."""
    return [pair for pair in PAIRS if gpus >= pair.ranks or (pair.on_cpu and not gpus)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these pairs; default: all")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("cpu.json"), metavar="FILE")
    parser.add_argument("--minutes", type=float, default=60.0, help="for all pairs together (default: 60)")
    options = parser.parse_args()
    use_one_thread()
    until = time.monotonic() + 60 * options.minutes
    here = {**environment(), "cores": len(os.sched_getaffinity(0)), "threads": os.environ["OMP_NUM_THREADS"]}
    pairs = [pair for pair in able(len(here["gpus"])) if not options.names or pair.name in options.names]
    again = bool(options.names) and options.out.exists()
    known = json.loads(options.out.read_text(encoding="utf-8")) if again else {"environment": here, "pairs": {}}
    if known["environment"] != here:
        sys.exit(f"{options.out}: measured on another machine; name no pair to measure all of them")
    rows: dict[str, Row] = known["pairs"]
    for number, pair in enumerate(pairs):
        left = (until - time.monotonic()) / 60
        if left <= 0:
            return
        try:
            rows[pair.name] = measured_pair(pair, left / (len(pairs) - number))
        except (RuntimeError, TraceoptError) as error:
            print(f"{pair.name}: {error}", file=sys.stderr)
            continue
        print(f"{pair.name}: {json.dumps(rows[pair.name])}", file=sys.stderr)
        text = json.dumps({"environment": here, "pairs": rows}, indent=1)
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
