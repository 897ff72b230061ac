#!/usr/bin/env python3
"""Compares `traceopt tune` with an exhaustive search over the same candidates, on real trainings.

python benchmarks/tune/real.py                          # ten workloads, some hours on a quiet machine
python benchmarks/tune/real.py --minutes 5 slow_loader  # only this one

Each workload is tuned twice: as `traceopt tune` does it, and with every fix and every value measured until its gain is
known well. Both end with the original against what was kept, and the runs of both are counted.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

if __name__ == "__main__":  # run as a script: the packages are two folders above
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.tune.exhaustive import Tuned, each_measured
from benchmarks.tune.speedups import STEPS, WORKLOADS
from traceopt import run_script
from traceopt.cli.shared.results import analyzed, configuration
from traceopt.result.document import Result
from traceopt.try_script import tuning
from traceopt.trying.changes import Change
from traceopt.trying.measured_run import Failure, MeasuredRun
from traceopt.trying.timed_runs import TimedRuns
from traceopt.trying.tuning import course
from traceopt.trying.workspace import Command

TEN = list(WORKLOADS)[:10]
TIME_LIMIT_S = 300.0  # of a run


class CountedRuns(TimedRuns):
    count = 0

    def __call__(self, sides: Sequence[Sequence[Change]], /) -> list[MeasuredRun | Failure | None]:
        CountedRuns.count += len(sides)
        return super().__call__(sides)


def tuned(name: str, minutes: float) -> Tuned:
    words = tuple(WORKLOADS[name].command("--device", "cpu", "--steps", str(STEPS)))
    config = configuration(None)

    def analyze(paths: Sequence[str], source: Sequence[Path]) -> Result:
        return analyzed(paths, config, source, debug=False, quiet=True)

    CountedRuns.count = 0
    wanted = tuning.Wanted([], (), None, 60 * minutes, TIME_LIMIT_S)
    with tempfile.TemporaryDirectory() as folder, patch.object(tuning, "TimedRuns", CountedRuns):
        settings = run_script.settings(
            words, False, Path(folder, "log"), None, step_on=None, stop_after=True, time_limit=120.0, preset="quick"
        )
        outcome = tuning.tune_script(Command(words, False, Path.cwd()), settings, wanted, analyze, quiet=True)
    whole = next((row for row in outcome.tried if row.kind == "all"), None)
    known = whole is not None and whole.before_us and whole.after_us
    return Tuned(whole.before_us / whole.after_us if whole is not None and known else 1.0, CountedRuns.count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=TEN, metavar="WORKLOAD")
    parser.add_argument("--minutes", type=float, default=120.0, help="for one tuning: enough for all candidates")
    options = parser.parse_args()
    print("| workload | tuned | exhaustive | share | runs | exhaustive runs | share of runs |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in options.workloads:
        found = tuned(name, options.minutes)
        with (
            patch.object(course, "best_of", each_measured),
            patch.object(tuning, "is_known", lambda rounds: rounds.settled),
        ):
            each = tuned(name, options.minutes)
        print(
            f"| {name} | {found.speedup:.2f} | {each.speedup:.2f} | {found.speedup / each.speedup:.0%} "
            f"| {found.runs} | {each.runs} | {found.runs / max(1, each.runs):.0%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
