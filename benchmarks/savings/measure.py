#!/usr/bin/env python3
"""Predicts and measures what the fixes of the workloads save on this machine.

python benchmarks/savings/measure.py                                        # writes cpu.json next to this file
python benchmarks/savings/measure.py --out benchmarks/savings/h200.json     # on a machine with such a GPU
python benchmarks/savings/page.py                                           # docs/accuracy.md, from all of them

For each pair that the machine can run, the plain variant is recorded and analyzed; the prediction comes from its trace
alone. Both variants are measured without a profiler, in the steps before the recording. A round covers all pairs, so a
busy minute of the machine spoils one round of a pair, not all of them. If other programs took a tenth of a core or
more, the measurement is repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # run as a script: the packages are two folders above
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fixtures.workloads.capture import environment, record
from fixtures.workloads.pairs import PAIRS, Pair
from traceopt.api import analyze
from traceopt.result.document import Result

LARGEST_BYTES = 1 << 30  # limit for the traces of a pair; they are discarded

BUSY_SHARE = 0.1  # of a core: if other programs take more, the measurement is repeated
ATTEMPTS = 3

Row = dict[str, Any]


def measured_quietly(pair: Pair) -> Row:
    """The first undisturbed measurement, or else the last attempt.

    `busy_elsewhere` is the CPU time that other programs took, as a share of one core; None if the system does not say.
    """
    for _ in range(ATTEMPTS):
        began, others = time.monotonic(), _others_cpu_s()
        row = measure(pair)
        now = _others_cpu_s()
        known = others is not None and now is not None
        row["busy_elsewhere"] = round((now - others) / (time.monotonic() - began), 3) if known else None
        if (row["busy_elsewhere"] or 0.0) < BUSY_SHARE:
            break
    return row


def _others_cpu_s() -> float | None:
    """CPU time of all other programs since the machine started (Linux)."""
    try:
        user, nice, system, _, _, irq, softirq = map(int, Path("/proc/stat").read_text().split()[1:8])
    except (OSError, ValueError):
        return None
    own = os.times()
    all_s = (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
    return all_s - (own.user + own.system + own.children_user + own.children_system)


def measure(pair: Pair) -> Row:
    """One round of a pair: both steps in milliseconds, and the saving that the plain trace predicts."""
    with tempfile.TemporaryDirectory() as folder:
        steps = {
            variant: record(pair, variant, Path(folder) / variant, LARGEST_BYTES)["step_us"] / 1e3
            for variant in ("plain", "fixed")
        }
        result = analyze(str(Path(folder) / "plain"))
        if pair.second:
            result = analyze(str(Path(folder) / "plain"), select=[*pair.codes, *pair.second])
    return {"plain_ms": steps["plain"], "fixed_ms": steps["fixed"], **prediction(result, pair)}


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
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("cpu.json"), metavar="FILE")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--minutes", type=float, default=60.0, help="start no pair after this time (default: 60)")
    options = parser.parse_args()
    for library in ("OMP", "MKL"):  # otherwise the run measures threads that wait for cores
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    until = time.monotonic() + 60 * options.minutes
    here = {**environment(), "cores": os.cpu_count(), "threads": os.environ["OMP_NUM_THREADS"]}
    pairs = able(len(here["gpus"]))
    measured: dict[str, list[Row]] = {pair.name: [] for pair in pairs}
    for pair in pairs * options.rounds:
        if time.monotonic() > until:
            break
        try:
            row = measured_quietly(pair)
        except RuntimeError as error:
            print(f"{pair.name}: {error}", file=sys.stderr)
            continue
        measured[pair.name].append(row)
        print(f"{pair.name}: {json.dumps(row)}", file=sys.stderr)
        options.out.write_text(json.dumps({"environment": here, "pairs": measured}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
