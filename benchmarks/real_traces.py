#!/usr/bin/env python3
"""What traceopt says of each real trace beside what an expert saw in it; writes docs/real-traces.md.

python benchmarks/real_traces.py

The traces lie in ../shared/traces, beside the repository, with what was seen in them (expected.json).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from traceopt.api import analyze
from traceopt.errors import InputError
from traceopt.result.document import Result

ROOT = Path(__file__).resolve().parents[1]
TRACES = ROOT.parent / "shared" / "traces"

HEAD = """\
# Real traces

Written by `python benchmarks/real_traces.py`; do not edit.

What an expert saw in each trace, with its share of the time where it has one, and what traceopt says: the findings
that give back 3% of the step and more, the first of the others, and what it says of the trace's quality. The traces
are those of the repositories that their folders name; they are not part of this one.

| trace | device | step | seen | found | of the trace |
| --- | --- | ---: | --- | --- | --- |
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
    expected = TRACES / "expected.json"
    if not expected.is_file():
        sys.exit("the real traces are not in ../shared/traces, beside this checkout")
    truth = json.loads(expected.read_text(encoding="utf-8"))["traces"]
    rows = [row(file, about) for file, about in sorted(truth.items()) if isinstance(about, dict)]
    (ROOT / "docs" / "real-traces.md").write_text(HEAD + "\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
