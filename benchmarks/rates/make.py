#!/usr/bin/env python3
"""Makes the table of what matmuls and attention take on a kind of device, which is shipped with the package.

python benchmarks/rates/make.py              # from the recordings in fixtures/traces/h100
python benchmarks/rates/make.py --measure    # on the GPU of this machine, by the code of `traceopt measure`
python benchmarks/rates/make.py --check      # writes nothing

It prints how far each size is from what the table tells without it: the error for a size that it does not have.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from msgspec.structs import replace

if __name__ == "__main__":  # run as a script: the packages are two folders above
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.rates import known_rates
from traceopt.analyzer.rates.known_rates import ALIGNED, KnownRates
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.measuring.comparing import DisturbedError, time_of
from traceopt.result.experiments import Attention, Experiment, Matmul, Timed

RECORDINGS = Path(__file__).resolve().parents[2] / "fixtures" / "traces" / "h100"
DTYPES = ("bf16", "fp16", "tf32", "fp32")
ROWS, COLUMNS, INNER = (1024, 8192, 65536), (64, 1024, 4096, 32768), (64, 1024, 4096)
BATCH, HEADS, TOKENS, HEAD_SIZES = 8, 16, (256, 1024, 4096), (64, 128)


def recordings(name: str = "*", variant: str = "*") -> list[Path]:
    return sorted(RECORDINGS.glob(f"{name}/{variant}/*.pt.trace.json.gz"))


@cache
def works_of(path: Path) -> tuple[str, list[Timed]]:
    """The device of a recording, and its matmuls and fused attention by size."""
    with path.open("rb") as stream:
        facts = Facts(read_trace(stream, path.name))
    found = [
        Timed(shape.work, shape.kernel_ns / shape.calls)
        for shape in facts.gemms.shapes
        if shape.dtype in DTYPES and not any(size % ALIGNED for size in (shape.m, shape.n, shape.k))
    ]
    found += [Timed(call.work, call.duration_ns / call.calls) for call in facts.attention_calls]
    return facts.device.name or "", found


def recorded(paths: Sequence[Path]) -> KnownRates:
    """The table from these recordings: of each size the median."""
    times: dict[Experiment, list[float]] = defaultdict(list)
    for path in paths:
        device, works = works_of(path)
        for one in works:
            times[one.experiment].append(one.ns)
    rows = tuple(Timed(work, round(median(ns), 1)) for work, ns in times.items())
    return KnownRates(device, "recordings of the workloads in fixtures/traces/h100", rows)


def without(name: str) -> KnownRates:
    """The table from the recordings of all other workloads, without the sizes of this one: for a run whose device was
    measured, but not with its own work.
    """
    own = {_size(one.experiment) for path in recordings(name) for one in works_of(path)[1]}
    table = recorded([path for path in recordings() if path.parts[-3] != name])
    return replace(table, timed=tuple(one for one in table.timed if _size(one.experiment) not in own))


def measured(device: str = "cuda:0") -> KnownRates:
    """The table of a sweep over sizes on this machine. What the device cannot do is left out."""
    torch: Any = importlib.import_module("torch")
    rows = []
    for experiment in sweep():
        with suppress(RuntimeError, DisturbedError):  # lack of memory, or of kernels for this type
            rows.append(Timed(experiment, round(time_of(torch, device, experiment), 1)))
    name = torch.cuda.get_device_name(device) if device != "cpu" else "CPU"
    return KnownRates(name, f"a sweep by benchmarks/rates/make.py with PyTorch {torch.__version__}", tuple(rows))


def sweep() -> Iterator[Experiment]:
    for dtype, m, n, k in product(DTYPES, ROWS, COLUMNS, INNER):
        yield Matmul(m, n, k, 1, dtype)
    for dtype, tokens, size, causal, backward in product(DTYPES, TOKENS, HEAD_SIZES, (False, True), (False, True)):
        if dtype != "tf32":
            yield Attention(BATCH, HEADS, tokens, tokens, size, dtype, causal=causal, backward=backward)


def left_out_errors(table: KnownRates) -> dict[str, list[float]]:
    """By kind of work: how far each size is from what the table tells without it, as a share; smallest first."""
    errors: dict[str, list[float]] = defaultdict(list)
    for one in table.timed:
        others = replace(table, timed=tuple(other for other in table.timed if other is not one))
        if (ns := others.ns(one.experiment)) is not None:
            kind = type(one.experiment).__name__.lower()
            errors[f"{kind} in {one.experiment.dtype}"].append(abs(ns / one.ns - 1))
    return {kind: sorted(found) for kind, found in errors.items()}


def _size(work: Experiment) -> Experiment:
    """The work in any type."""
    return replace(work, dtype="fp32") if isinstance(work, Matmul | Attention) else work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="on this machine's GPU, not from recordings")
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    table = measured() if options.measure else recorded(recordings())
    for kind, errors in left_out_errors(table).items():
        print(f"{kind}: {len(errors)} sizes, median {median(errors):.0%}, largest {errors[-1]:.0%}")
    if not options.check:
        text = msgspec.json.format(msgspec.json.encode(table), indent=0)
        file = Path(known_rates.__file__).with_name(re.sub(r"\W+", "_", table.device).lower() + ".json")
        file.write_bytes(text + b"\n")


if __name__ == "__main__":
    main()
