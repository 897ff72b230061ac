#!/usr/bin/env python3
"""How much more exact predictions become with what `traceopt run` measures on the device after the run.

python benchmarks/savings/experiments.py                               # all pairs that this machine can run
python benchmarks/savings/experiments.py unfused_attention --rounds 5  # only this one, in five rounds or more

As in measure.py, the plain variant is recorded and analyzed, and both variants run in turn without a profiler. The
analysis is made twice: without and with the answers to the experiments that it asks for. It writes no file: a machine
that others use gives no numbers to publish, so each row says how many of its rounds were disturbed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from msgspec import Struct

if __name__ == "__main__":  # run as a script: the packages are two folders above
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.savings.measure import able, found_of, predicted, tried_pair, use_one_thread
from fixtures.workloads.capture import environment
from fixtures.workloads.pairs import Pair
from traceopt.api import analyze
from traceopt.errors import TraceoptError
from traceopt.measuring.for_document import comparisons_of, measured, place_beside, write
from traceopt.result.document import Result

BUDGET_S = 20.0  # of the experiments, as in `traceopt run`
DISTURBED = "Disturbed rounds are those in which other programs held the cores: do not publish them."


class Compared(Struct, frozen=True):
    """One pair: times in ms per step, gains without and with experiments; None without a prediction, as where the
    recorded step is not like the measured one.
    """

    name: str
    code: str
    comparisons: int
    plain_ms: float
    fixed_ms: float
    without_ms: float | None
    with_ms: float | None
    in_range: bool
    disturbed: int
    rounds: int

    def error(self, predicted_ms: float | None) -> float | None:
        """Of a predicted gain, as a share of the measured one."""
        return None if predicted_ms is None else predicted_ms / (self.plain_ms - self.fixed_ms) - 1

    @property
    def row(self) -> str:
        errors = (self.error(one) for one in (self.without_ms, self.with_ms))
        shown = " | ".join("–" if error is None else f"{error:+.0%}" for error in errors)
        return (
            f"| {self.name} | {self.code} | {self.plain_ms:,.1f} | {self.fixed_ms:,.1f} | {self.comparisons} | {shown} "
            f"| {'yes' if self.in_range else 'no'} | {self.disturbed} of {self.rounds} |"
        )


def with_experiments(paths: list[str], select: Sequence[str] = ()) -> list[Result]:
    """The recording analyzed without and with what this machine answers. `select`: only these rules, if any."""
    before = analyze(paths, select=select)
    if not comparisons_of(before):
        return [before, before]
    rates = place_beside(before)
    write(rates, measured(before, BUDGET_S, again=True))
    return [before, analyze([*paths, str(rates)], select=select)]


def compared(pair: Pair, minutes: float, least_rounds: int) -> Compared:
    """Raises RuntimeError or TraceoptError if the pair cannot be recorded or run."""
    select = [*pair.codes, *pair.second] if pair.second else []  # of two faults together, no third fix counts
    results, rounds = tried_pair(pair, minutes, lambda paths: with_experiments(paths, select), least_rounds)
    without, now = (predicted(result, pair, rounds) for result in results)
    plain_ms, fixed_ms = (
        median(run.step_us for run in side) / 1e3 for side in (rounds.counted_before, rounds.counted_after)
    )
    return Compared(
        pair.name,
        (found_of(results[-1], pair) or ("none",))[0],
        len(comparisons_of(results[0])),
        plain_ms,
        fixed_ms,
        without.get("saving_ms"),
        now.get("saving_ms"),
        now.get("low_ms", 0.0) <= plain_ms - fixed_ms <= now.get("high_ms", 0.0),
        sum(why is not None for why in rounds.disturbed),
        len(rounds.before),
    )


def summary(pairs: Sequence[Compared]) -> str:
    """The errors of all pairs, without and with experiments."""
    lines = []
    for how, gains in (("without", [pair.without_ms for pair in pairs]), ("with", [pair.with_ms for pair in pairs])):
        errors = sorted(
            abs(error) for one, gain in zip(pairs, gains, strict=True) if (error := one.error(gain)) is not None
        )
        if errors:
            lines.append(f"{how} experiments: median error of the gain {median(errors):.0%}, largest {errors[-1]:.0%}")
    inside = sum(pair.in_range for pair in pairs)
    return "\n".join([*lines, f"{inside} of {len(pairs)} measured gains in the range. {DISTURBED}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these pairs; default: all")
    parser.add_argument("--rounds", type=int, default=2, help="at least, of each pair (default: 2)")
    parser.add_argument("--minutes", type=float, default=60.0, help="for all pairs together (default: 60)")
    options = parser.parse_args()
    use_one_thread()
    until = time.monotonic() + 60 * options.minutes
    wanted = [one for one in able(len(environment()["gpus"])) if not options.names or one.name in options.names]
    found = list[Compared]()
    print("| workload | rule | plain | fixed | experiments | error without | error with | in range | disturbed |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | --- | ---: |", flush=True)
    for number, pair in enumerate(wanted):
        if (left := (until - time.monotonic()) / 60) <= 0:
            break
        try:
            found.append(compared(pair, left / (len(wanted) - number), options.rounds))
        except (RuntimeError, TraceoptError) as error:
            print(f"{pair.name}: {error}", file=sys.stderr)
            continue
        print(found[-1].row, flush=True)
    if found:
        print(summary(found))


if __name__ == "__main__":
    main()
