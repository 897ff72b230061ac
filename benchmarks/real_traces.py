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
from traceopt.reports.words.names import short_path
from traceopt.reports.words.run_words import device_phrase
from traceopt.result.document import Result
from traceopt.result.words.quantities import estimated

ROOT = Path(__file__).resolve().parents[1]

HEAD = """\
# Real traces

Written by `python benchmarks/real_traces.py`; do not edit.

What an expert saw in each trace, with its share of the time if known, and what traceopt says. In brackets: what a fix
of the plan saves without the others, if that differs. Notes are about the quality of the trace.

"""

COLUMNS = """\
| trace | device | step | expert | verdict | plan | first place | notes |
| --- | --- | ---: | --- | --- | --- | --- | --- |
"""

DIFFERENCES = """\

## Where traceopt and the expert differ

Two bottlenecks of the expert have a finding (CM001, GM001) but no high rank, because a fix of the GPU's work alone
gains little while the host is the limit. This was checked against the raw events, without the replay.

- `hta/nccl_parser_config/nccl_data`, exposed communication 6%: the GPU is idle for 76% of the step and the host waits
  for it for 0.03 ms of 222. A step without exposed communication is launched as late as before.
- `hta/trace_diff/control/control`, misaligned matmuls 10%: the host waits for the GPU for 12.6 ms of 77.5. Its own work
  takes 65 ms, so LB002 comes first, and aligned matmuls or overlapped communication gain more after it.
"""

SOURCES = """\

## Where the traces come from

Other people published these traces in their repositories, under licenses that allow copies. They are not part of this
repository.

| folder | repository | path in it | license |
| --- | --- | --- | --- |
| `kineto/` | pytorch/kineto | `tb_plugin/samples` | BSD-3-Clause |
| `hta/` | facebookresearch/HolisticTraceAnalysis | `tests/data` | MIT |
| `tracelens/` | AMD-AGI/TraceLens | `tests/traces` | MIT |

Tests and benchmarks look for these folders in `../shared/traces`, next to the checkout, together with the file
`expected.json`, which says what an expert saw in each trace. That file is not published. Without it, the tests marked
`real_traces` are skipped, and a benchmark that needs the traces says so and ends with exit code 2.

Other traces that tests read, in `../shared/traces/public`, are all under Apache-2.0, BSD-3-Clause or MIT. They come
from AMD-AGI/TraceLens, Aphelack/efficient-dl-systems, CodingPlatelets/SwitchTransformers, facebookresearch/param,
harryjmoss/particle_transformer, leimao/PyTorch-CUDA-Graph-Capture-Examples, Lightning-AI/pytorch-lightning,
luatil/torch-profile, pytorch/benchmark, sidnb13/torch-profiling-tutorial and Yeok-c/sustainbench.
"""


def row(file: str, seen: str) -> str:
    name = file.removesuffix(".gz").removesuffix(".json").removesuffix(".pt.trace")
    try:
        result = analyze(str(TRACES / file))
    except InputError as error:
        reason = str(error).replace(str(TRACES / file), "the file")
        return _joined([name, "–", "–", seen, f"refused: {reason}", "–", "–", "–"])
    step = "–" if result.step.typical_us is None else f"{result.step.typical_us / 1e3:,.1f} ms"
    notes = ", ".join(dict.fromkeys(note.code for note in result.quality.notes)) or "–"
    plan = ", ".join(_planned(result)) or "none"
    return _joined([name, device_phrase(result), step, seen, result.verdict, plan, _place(result), notes])


def _joined(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _seen(cause: dict[str, Any]) -> str:
    share = cause.get("share_of_time")
    kind = str(cause["kind"]).replace("_", " ")
    return f"{kind} {share:.0f}%" if share else kind


def _planned(result: Result) -> Iterator[str]:
    for one in result.plan:
        saved, alone = estimated(one.saving_us), estimated(one.alone_us)
        yield f"{one.code} {saved}" + ("" if saved == alone else f" ({alone})")


def _place(result: Result) -> str:
    """Where the first finding with a place is."""
    found = next((finding.locations[0] for finding in result.findings if finding.locations), None)
    return f"`{short_path(str(found))}`" if found is not None else "–"


def page() -> str:
    seen = {file: ", ".join(map(_seen, truth["present"])) or "nothing" for file, truth in expected().items()}
    rows = "\n".join(row(file, what) for file, what in seen.items())
    return f"{HEAD}{COLUMNS}{rows}\n{DIFFERENCES}{SOURCES}"


def main() -> None:
    require()
    (ROOT / "docs" / "real-traces.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
