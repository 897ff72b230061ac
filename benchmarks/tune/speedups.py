#!/usr/bin/env python3
"""Compares what `traceopt tune` reaches with the fixed variant of each workload, which a person made.

python benchmarks/tune/speedups.py                       # about half an hour a workload, on a quiet machine
python benchmarks/tune/speedups.py --minutes 5 healthy   # only this one

Each script in fixtures/workloads that a CPU can run has a planted bottleneck and a variant --fixed without it. It is
tuned, and the variant is tried as any change. A tuning may gain more: it also searches values of settings.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

if __name__ == "__main__":  # run as a script: the packages are two folders above
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fixtures.workloads.pairs import HEALTHY, PAIRS, Pair
from traceopt.reports.words.comparing import trial_words
from traceopt.result.document import Result
from traceopt.result.trial import TriedChange

WORKLOADS = {pair.name: pair for pair in (*PAIRS, HEALTHY) if pair.on_cpu and pair.ranks == 1}
STEPS = 400  # of the script: more than are recorded or measured


def measured(pair: Pair, command: str, *options: str) -> list[TriedChange]:
    """The changes that `traceopt try` or `traceopt tune` measured."""
    with tempfile.TemporaryDirectory() as folder:
        document = Path(folder, "result.json")
        words = [sys.executable, "-m", "traceopt", command, *options, "--preset=quick", "--no-html"]
        words += [f"--json={document}", f"--logdir={folder}/log", "--"]
        words += pair.command("--device", "cpu", "--steps", str(STEPS))
        done = subprocess.run(words, capture_output=True)
        if done.returncode:
            raise RuntimeError(done.stderr.decode(errors="replace").strip())
        return msgspec.json.decode(document.read_bytes(), type=Result).tried


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD")
    parser.add_argument("--minutes", type=float, default=20.0, help="for one tuning")
    options = parser.parse_args()
    print("| workload | kept | tuned | by hand | losses | rounds measured |\n| --- | --- | ---: | ---: | --- | ---: |")
    for name in options.workloads or WORKLOADS:
        pair, budget = WORKLOADS[name], f"--budget={options.minutes}"
        rows = measured(pair, "tune", budget)
        kept = " + ".join(row.name for row in rows if row.verdict == "keep" and row.kind != "all") or "nothing"
        whole = next((row for row in rows if row.kind == "all"), None)
        tuned = (trial_words.change(whole), trial_words.losses(whole)) if whole is not None else ("–", "–")
        by_hand = trial_words.change(measured(pair, "try", budget, "--args=--fixed")[0]) if pair is not HEALTHY else "–"
        rounds = sum(len(row.rounds) for row in rows)
        print(f"| {name} | {kept} | {tuned[0]} | {by_hand} | {tuned[1]} | {rounds} |", flush=True)


if __name__ == "__main__":
    main()
