#!/usr/bin/env python3
"""What traceopt says that a fix gives back, beside what it gave back: every workload pair that this machine can run.

python benchmarks/savings.py --write docs/accuracy.md

Of each pair the plain variant is recorded and analyzed; the prediction comes from its trace alone. Both variants are
measured without a profiler, in the steps before the recording, several runs in turn.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

if __name__ == "__main__":  # run as a script: the packages are a folder above
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fixtures.workloads.capture import environment, record
from fixtures.workloads.pairs import PAIRS, Pair
from traceopt.api import analyze
from traceopt.rules.finding import Finding

LARGEST_BYTES = 1 << 30  # of the traces of a pair, which are thrown away


@dataclass(frozen=True)
class Proof:
    """One pair; steps in milliseconds, medians of the runs without a profiler."""

    pair: Pair
    plain_ms: float
    fixed_ms: float
    finding: Finding | None  # of the kind that was planted, the most valuable

    @property
    def predicted_ms(self) -> float | None:
        """The estimate is a share of the recorded step; it is taken off the step without a profiler."""
        if self.finding is None or self.finding.saving is None:
            return None
        return self.plain_ms * (1 - self.finding.saving.share)

    @property
    def gain_error(self) -> float | None:
        """Of the predicted gain, as a share of the measured one."""
        if self.predicted_ms is None:
            return None
        return (self.plain_ms - self.predicted_ms) / (self.plain_ms - self.fixed_ms) - 1


def prove(pairs: list[Pair], runs: int) -> Iterator[Proof]:
    for pair in pairs:
        steps: dict[str, list[float]] = {"plain": [], "fixed": []}
        with tempfile.TemporaryDirectory() as folder:
            traces = Path(folder) / "plain"
            for run in range(runs):
                for variant, measured in steps.items():
                    kept = traces if (variant, run) == ("plain", 0) else Path(folder) / f"{variant}{run}"
                    measured.append(record(pair, variant, kept, LARGEST_BYTES)["step_us"] / 1e3)
            findings = analyze(str(traces)).findings
        finding = next((f for f in findings if f.code in (*pair.codes, *pair.also) and f.saving is not None), None)
        proof = Proof(pair, median(steps["plain"]), median(steps["fixed"]), finding)
        print(row(proof), file=sys.stderr)
        yield proof


def row(proof: Proof) -> str:
    code = proof.finding.code if proof.finding else "none"
    predicted = "–" if proof.predicted_ms is None else f"{proof.predicted_ms:,.1f}"
    error = "–" if proof.gain_error is None else f"{proof.gain_error:+.0%}"
    return (
        f"| {proof.pair.name} | {code} | {proof.plain_ms:,.1f} | {proof.fixed_ms:,.1f} | {predicted} "
        f"| {proof.plain_ms - proof.fixed_ms:,.1f} | {error} |"
    )


def page(proofs: list[Proof], left_out: list[Pair], runs: int) -> str:
    here = environment()
    errors = sorted(abs(proof.gain_error) for proof in proofs if proof.gain_error is not None)
    threads = os.environ.get("OMP_NUM_THREADS", "all")
    device = ", ".join(here["gpus"]) or f"CPU, {os.cpu_count()} cores, OMP_NUM_THREADS={threads}"
    missing = f"Not measured on a GPU yet: {', '.join(pair.name for pair in left_out)}.\n\n" if left_out else ""
    return f"""# How far predicted savings are off

Written by `python benchmarks/savings.py --write docs/accuracy.md`; do not edit.

Each script of `fixtures/workloads` has one planted bottleneck and, with `--fixed`, none. The prediction comes from the
trace of the plain script alone: its step without a profiler, less the share that the finding says its fix gives back.
Measured is the script with `--fixed`, without a profiler. Times are milliseconds a step, medians of {runs} runs in
turn.

{device}; {platform.machine()}, PyTorch {here["torch"]}.

| workload | rule | plain | fixed | predicted | gain | error of the gain |
| --- | --- | ---: | ---: | ---: | ---: | ---: |
{chr(10).join(map(row, proofs))}

The gain is missed by {median(errors):.0%} in the median and by {errors[-1]:.0%} at most, over {len(errors)} of
{len(proofs)} pairs; in the others nothing of the planted kind was found.

{missing}Generated traces with planted faults, and how well a replay without a change gives real traces back, are in
[how far the replay is off](replay-accuracy.md).
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="of each variant (default: 3)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="the page to write (default: stdout)")
    options = parser.parse_args()
    for library in ("OMP", "MKL"):  # threads that wait for cores would be measured, not the workloads
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    gpus = len(environment()["gpus"])
    able = [pair for pair in PAIRS if gpus >= pair.ranks or (pair.on_cpu and not gpus)]
    text = page(list(prove(able, options.runs)), [pair for pair in PAIRS if pair not in able], options.runs)
    if options.write:
        options.write.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
