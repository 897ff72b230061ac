#!/usr/bin/env python3
"""Compares what traceopt reports for each real trace with what an expert saw in it; writes docs/real-traces.md.

python benchmarks/real_traces.py

The traces are in ../shared/traces, next to the checkout, with what the expert saw (expected.json).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # run as a script: fixtures/ is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fixtures.real_traces import TRACES, expected, require
from traceopt.api import analyze
from traceopt.errors import InputError
from traceopt.result.document import Result

ROOT = Path(__file__).resolve().parents[1]

HEAD = """\
# Real traces

Written by `python benchmarks/real_traces.py`; do not edit.

For each trace, the table shows what an expert saw, with its share of the time if known, and what traceopt reports: the
findings that save at least 3% of the step (or else the first finding), and the notes on trace quality.

| trace | device | step | expert | traceopt | quality notes |
| --- | --- | ---: | --- | --- | --- |
"""

SOURCES = """\

## Where the traces come from

Other people recorded these traces and published them in their repositories, under licences that allow copies. They are
not part of this repository.

| folder | repository | path in it | licence |
| --- | --- | --- | --- |
| `kineto/` | pytorch/kineto | `tb_plugin/samples` | BSD-3-Clause |
| `hta/` | facebookresearch/HolisticTraceAnalysis | `tests/data` | MIT |
| `tracelens/` | AMD-AGI/TraceLens | `tests/traces` | MIT |

Tests and benchmarks look for these folders in `../shared/traces`, next to the checkout, together with the file
`expected.json`, which says what an expert saw in each trace. That file is not published. Without it, the tests marked
`real_traces` are skipped, and a benchmark that needs the traces says so and ends with exit code 2.

Some tests also read traces in `../shared/traces/public`, all under Apache-2.0, BSD-3-Clause or MIT. They come from
AMD-AGI/TraceLens, Aphelack/efficient-dl-systems, CodingPlatelets/SwitchTransformers, facebookresearch/param,
harryjmoss/particle_transformer, leimao/PyTorch-CUDA-Graph-Capture-Examples, Lightning-AI/pytorch-lightning,
luatil/torch-profile, pytorch/benchmark, sidnb13/torch-profiling-tutorial and Yeok-c/sustainbench.
"""


def row(file: str, truth: dict[str, Any]) -> str:
    name = file.removesuffix(".gz").removesuffix(".json").removesuffix(".pt.trace")
    seen = ", ".join(_seen(cause) for cause in truth["present"]) or "nothing"
    try:
        result = analyze(str(TRACES / file))
    except InputError as error:
        reason = str(error).replace(str(TRACES / file), "the file")
        return f"| {name} | – | – | {seen} | refused: {reason} | – |"
    device = result.run.device.name if result.run.device else None
    step = "–" if result.step.median_us is None else f"{result.step.median_us / 1e3:,.1f} ms"
    notes = ", ".join(dict.fromkeys(note.code for note in result.quality.notes)) or "–"
    return f"| {name} | {device or 'CPU'} | {step} | {seen} | {', '.join(_found(result)) or 'nothing'} | {notes} |"


def _seen(cause: dict[str, Any]) -> str:
    share = cause.get("share_of_time")
    kind = str(cause["kind"]).replace("_", " ")
    return f"{kind} {share:.0f}%" if share else kind


def _found(result: Result) -> Iterator[str]:
    large = [finding for finding in result.findings if finding.impact in ("high", "medium")]
    for finding in large or result.findings[:1]:
        share = f" {finding.saving.share:.0%}" if finding.saving else ""
        yield f"{finding.code} {finding.name}{share}"


def main() -> None:
    require()
    rows = [row(file, truth) for file, truth in expected().items()]
    (ROOT / "docs" / "real-traces.md").write_text(HEAD + "\n".join(rows) + "\n" + SOURCES, encoding="utf-8")


if __name__ == "__main__":
    main()
