#!/usr/bin/env python3
"""Writes a part of docs/accuracy.md: predicted and measured savings, of the JSON files of measure.py and of
captures.py, and the score on the real traces.

python benchmarks/savings/page.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

if __name__ == "__main__":  # run as a script: the packages are two folders above
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.marked import with_part
from benchmarks.savings.captures import captured_pairs, section
from benchmarks.savings.measure import MOST_NOISE, ROUNDS
from benchmarks.savings.widths import Predicted, held
from fixtures.real_traces import SCORE, require
from fixtures.workloads.pairs import PAIRS

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
PAGE = ROOT / "docs" / "accuracy.md"
SCORE_COMMAND = [os.path.relpath(SCORE, ROOT), "--traceopt", ".venv/bin/traceopt"]


@dataclass(frozen=True)
class Proof:
    """One pair on one machine. `rounds` is what measure.py writes. Steps are in ms, as medians over the rounds."""

    name: str
    rounds: list[dict[str, Any]]
    discarded: int
    noise: float | None  # half the interval of the change, as a share of the plain step
    trace_alone: float | None = None  # the saving predicted without experiments, as a share of the one with them

    @cached_property
    def plain_ms(self) -> float:
        return median(row["plain_ms"] for row in self.rounds)

    @cached_property
    def fixed_ms(self) -> float:
        return median(row["fixed_ms"] for row in self.rounds)

    @cached_property
    def predicted_ms(self) -> float | None:
        """The step without a profiler minus the estimate; None if most rounds found nothing of the planted kind."""
        savings = [row["saving_ms"] for row in self.rounds if "saving_ms" in row]
        return self.plain_ms - median(savings) if len(savings) > len(self.rounds) / 2 else None

    @property
    def step_error(self) -> float | None:
        return None if self.predicted_ms is None else self.predicted_ms / self.fixed_ms - 1

    @property
    def gain_error(self) -> float | None:
        """The error of the predicted gain, as a share of the measured gain."""
        return self._error(1.0)

    @property
    def error_of_trace_alone(self) -> float | None:
        """The error of the gain that the trace alone predicts."""
        return None if self.trace_alone is None else self._error(self.trace_alone)

    def _error(self, share: float) -> float | None:
        """Of this share of the predicted gain."""
        if self.predicted_ms is None:
            return None
        return share * (self.plain_ms - self.predicted_ms) / (self.plain_ms - self.fixed_ms) - 1

    @property
    def published(self) -> bool:
        """Whether the change is known well enough, and the gain stands out from its noise."""
        if self.noise is None or len(self.rounds) < ROUNDS:
            return False
        gain_ms = abs(self.plain_ms - self.fixed_ms)
        return self.noise <= MOST_NOISE and gain_ms > self.noise * self.plain_ms

    @property
    def codes(self) -> str:
        found = [row["code"] for row in self.rounds if "code" in row]
        return max(found, key=found.count) if found else "none"


def row(proof: Proof) -> str:
    predicted = "–" if proof.predicted_ms is None else f"{proof.predicted_ms:,.1f}"
    errors = ("–" if error is None else f"{error:+.0%}" for error in (proof.step_error, proof.gain_error))
    return (
        f"| {proof.name} | {proof.codes} | {proof.plain_ms:,.1f} | {predicted} | {proof.fixed_ms:,.1f} "
        f"| ± {proof.noise or 0:.1%} | {' | '.join(errors)} |"
    )


def predictions_of(proofs: Sequence[Proof]) -> list[Predicted]:
    """Of those with a prediction; in ms. Of two fixes together only the saving is predicted, not its range."""
    found = []
    for proof in proofs:
        rows = [row for row in proof.rounds if "low_ms" in row]
        if proof.predicted_ms is not None and rows:
            low, high = (median(row[end] for row in rows) for end in ("low_ms", "high_ms"))
            expected = proof.plain_ms - proof.predicted_ms
            found.append(Predicted(proof.codes, expected, low, high, proof.plain_ms - proof.fixed_ms))
    return found


def measured_on_cpu() -> list[Predicted]:
    """The published pairs of this folder's cpu.json."""
    measured = json.loads((FOLDER / "cpu.json").read_text(encoding="utf-8"))
    return predictions_of([proof for proof in proofs_of(measured) if proof.rounds and proof.published])


def proofs_of(measured: dict[str, Any]) -> list[Proof]:
    return [Proof(name, **pair) for name, pair in measured["pairs"].items()]


def machine(measured: dict[str, Any]) -> str:
    """The section about one machine."""
    here, proofs = measured["environment"], proofs_of(measured)
    device = ", ".join(here["gpus"]) or f"CPU, {here['cores']} cores, OMP_NUM_THREADS={here['threads']}"
    shown = [proof for proof in proofs if proof.rounds and proof.published]
    rest = [proof.name for proof in proofs if proof not in shown]
    steps = sorted(abs(error) for proof in shown if (error := proof.step_error) is not None)
    gains = sorted(abs(error) for proof in shown if (error := proof.gain_error) is not None)
    alone = sorted(abs(error) for proof in shown if (error := proof.error_of_trace_alone) is not None)
    older = [proof.name for proof in shown if proof.trace_alone is None and proof.predicted_ms is not None]
    discarded = sum(proof.discarded for proof in proofs)
    summary = (
        f"The median error of the predicted step is {median(steps):.0%}, the largest {steps[-1]:.0%}.\n"
        f"The median error of the predicted gain is {median(gains):.0%}, the largest {gains[-1]:.0%}.\n"
        f"{without_experiments(alone)}"
        f"{held(predictions_of(shown))}\n"
        "This is no independent test of the ranges, because `ERROR_ON_CPU` is chosen from this table.\n"
        f"{len(steps)} of {len(shown)} pairs have a prediction.{' ' if rest else ''}"
        if steps
        else ""
    )
    not_shown = f"Measured too imprecisely to publish: {', '.join(rest)}." if rest else ""
    head = f"""### {device}

{here["machine"]}, PyTorch {here["torch"]}. Medians over {ROUNDS} or more rounds of `traceopt try`;
not counted: {discarded}. Noise is half the 99% interval of the change, as a share of the plain step.
A pair whose noise exceeds {MOST_NOISE:.0%}, or its gain, is not shown.
"""
    if not shown:
        return f"{head}\n{not_shown}"
    from_trace = f" Predicted from the trace alone, by an earlier version: {', '.join(older)}." if older else ""
    return f"""{head}
{summary}{not_shown}{from_trace}

| workload | rule | plain | predicted | fixed | noise | error of the step | error of the gain |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |
{chr(10).join(map(row, shown))}
"""


def without_experiments(errors: Sequence[float]) -> str:
    """What the trace alone predicts; `errors` in order."""
    if not errors:
        return ""
    return f"From the trace alone, without experiments: {median(errors):.0%}, the largest {errors[-1]:.0%}.\n"


def part(machines: list[dict[str, Any]], captures: str, score: str) -> str:
    done = {proof.name for measured in machines for proof in proofs_of(measured) if proof.rounds}
    on_gpu = {name for measured in machines if measured["environment"]["gpus"] for name in measured["pairs"]}
    on_gpu |= {pair.name for pair in captured_pairs()}
    missing = [pair.name for pair in PAIRS if pair.name not in (done if pair.on_cpu else on_gpu)]
    left_out = f"Not measured yet, on a GPU if they need one: {', '.join(missing)}.\n\n" if missing else ""
    return f"""## Savings

Written by `python benchmarks/savings/page.py`. `python benchmarks/savings/measure.py` repeats the measurement.

Each script in `fixtures/workloads` has a planted bottleneck (one has two), and none with `--fixed`. The prediction
comes from the recording of the plain script, and from the [experiments](prices.md) that its findings ask for: its step
without a profiler, minus the saving of the finding. It is compared with the step of the script with `--fixed`, without
a profiler. Times are milliseconds per step.

{chr(10).join(map(machine, machines))}
{captures}
{left_out}## Findings of an expert

`python3 {" ".join(SCORE_COMMAND)}` compares with what an expert saw in the
[real traces](real-traces.md), from V100 to H100, MI300 and CPU:

```
{score}
```
"""


def score() -> str:
    """The summary that the scoring script prints. Needs the real traces."""
    require()
    done = subprocess.run([sys.executable, *SCORE_COMMAND], cwd=ROOT, capture_output=True, text=True, check=True)
    return next(line for line in done.stdout.splitlines() if line.startswith("recall"))


def main() -> None:
    rated = score()  # first, as it says if the real traces are missing
    machines = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(FOLDER.glob("*.json"))]
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_part(text, "savings/page.py", part(machines, section(), rated)), encoding="utf-8")


if __name__ == "__main__":
    main()
