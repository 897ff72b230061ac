#!/usr/bin/env python3
"""Predictions of captured traces against the steps that the same runs measured without a profiler.

python benchmarks/savings/captures.py    # writes captured/h100.json: what is predicted of fixtures/traces/h100
python benchmarks/savings/captures.py --without-table    # prints the errors as on a GPU that nobody measured

On a GPU that is only at hand for minutes, `fixtures/workloads/capture.py` runs every variant once: 40 steps without a
profiler, then the recording. The traces are kept, so the predictions are made anew with today's rules, on any machine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from unittest.mock import patch

from msgspec import Struct, json

if __name__ == "__main__":  # run as a script: the packages are two folders above
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.rates.make import without
from benchmarks.savings.measure import found_of
from benchmarks.savings.widths import Predicted, held
from fixtures.workloads.pairs import PAIRS, Pair
from traceopt.analyzer.rates import known_rates
from traceopt.api import analyze
from traceopt.result.document import Result

ROOT = Path(__file__).resolve().parents[2]
CAPTURES = ROOT / "fixtures" / "traces" / "h100"
PREDICTED = Path(__file__).with_name("captured") / "h100.json"


class Capture(Struct, frozen=True):
    """One pair. Steps are those without a profiler, in ms; savings are shares (0..1) of the plain step."""

    name: str
    plain_ms: float
    fixed_ms: float
    code: str | None = None  # the finding of the planted kind; None: there is none
    predicted: float = 0.0
    low: float = 0.0
    high: float = 0.0

    @property
    def gain(self) -> float:
        return 1 - self.fixed_ms / self.plain_ms

    @property
    def predicted_ms(self) -> float:
        return (1 - self.predicted) * self.plain_ms


def traces(name: str, variant: str) -> list[str]:
    return sorted(map(str, (CAPTURES / name / variant).glob("*.pt.trace.json.gz")))


def captured_pairs() -> list[Pair]:
    """The pairs whose plain traces are kept."""
    return [pair for pair in PAIRS if traces(pair.name, "plain")]


def predicted(pair: Pair, *, by_table: bool) -> Result:
    """The plain recording analyzed. `by_table`: with rates of the device from all other workloads, in other sizes."""
    with patch.object(known_rates, "tables", lambda: [without(pair.name)] if by_table else []):
        return analyze(traces(pair.name, "plain"))


def capture_of(pair: Pair, *, by_table: bool = True) -> Capture:
    rows = json.decode((CAPTURES / "measured.json").read_bytes())["pairs"][pair.name]
    plain_ms, fixed_ms = (rows[variant]["step_us"] / 1e3 for variant in ("plain", "fixed"))
    result = predicted(pair, by_table=by_table)
    found = found_of(result, pair)
    if found is None:
        return Capture(pair.name, plain_ms, fixed_ms)
    code, saving = found
    shares = (us / typical_us(result) for us in (saving.us, saving.low_us, saving.high_us))
    return Capture(pair.name, plain_ms, fixed_ms, code, *shares)


def typical_us(result: Result) -> float:
    assert result.step.typical_us is not None  # noqa: S101
    return result.step.typical_us


def captured() -> list[Capture]:
    """What was predicted when this script ran."""
    return json.decode(PREDICTED.read_bytes(), type=list[Capture])


def predictions_of(captures: Iterable[Capture]) -> list[Predicted]:
    return [
        Predicted(capture.code, capture.predicted, capture.low, capture.high, capture.gain)
        for capture in captures
        if capture.code is not None
    ]


def section() -> str:
    environment = json.decode((CAPTURES / "measured.json").read_bytes())["environment"]
    captures = captured()
    found = [capture for capture in captures if capture.code is not None]
    errors = sorted(abs(one.predicted_ms / one.fixed_ms - 1) for one in found)
    points = sorted(abs(one.predicted - one.gain) for one in found)
    rows = "\n".join(
        f"| {capture.name} | {capture.code or 'none'} | {capture.plain_ms:,.1f} | {capture.predicted_ms:,.1f} "
        f"| {capture.fixed_ms:,.1f} | {capture.predicted:.0%} | {capture.gain:.0%} |"
        for capture in captures
    )
    return f"""### {", ".join(environment["gpus"])}

{environment["machine"]}, PyTorch {environment["torch"]}, {environment["cores"]} cores,
OMP_NUM_THREADS={environment["threads"]}. Predicted by `python benchmarks/savings/captures.py` from the traces in
`fixtures/traces/h100`. Each variant ran once, so the noise is not known: the steps are medians of 40 steps without a
profiler, before the recording. The [table of rates](prices.md) is made without the recordings and the sizes of the
workload.

The median error of the predicted step is {median(errors):.0%}, the largest {errors[-1]:.0%}.
The median error of the predicted gain is {100 * median(points):.0f} points, the largest {100 * points[-1]:.0f} points.
{held(predictions_of(captures))}
This is no independent test: the correction for the profiler and the prices of AT001, GM001, CV001, DL001, DL002,
EF008, LB006, MM003 and HS001 to HS003 were made when these traces had been seen, and `ERROR_ON_GPU` is chosen from this
table. The public pairs of `../shared/check/public.py` set no number, but they were known when all GPU pairs were given
one width.

| workload | rule | plain | predicted | fixed | predicted gain | gain |
| --- | --- | ---: | ---: | ---: | ---: | ---: |
{rows}

Five pairs have no trace here, because theirs exceeded 1 MB: log_each_step, checkpoint_each_step,
single_tensor_optimizer, two_bottlenecks, tiny_kernels.
"""


if __name__ == "__main__":
    by_table = "--without-table" not in sys.argv
    made = [capture_of(pair, by_table=by_table) for pair in captured_pairs()]
    if by_table:
        PREDICTED.write_bytes(json.format(json.encode(made), indent=1) + b"\n")
    for one in made:
        print(f"{one.name}: predicted step {one.predicted_ms / one.fixed_ms - 1:+.0%}")
