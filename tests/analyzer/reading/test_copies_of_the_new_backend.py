"""Copies as PyTorch's CUPTI backend of 2026 records them are read like Kineto's."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.traces import GetExample

from traceopt.api import analyze
from traceopt.testing.events import Json, read, span

COPY = re.compile(r"Memcpy (\w+) \(([\w ]+) -> ([\w ]+)\)")


def rewritten(event: Json) -> Json:
    """The event as the new backend writes it."""
    args: dict[str, Any] = event.get("args", {})
    if match := COPY.match(event["name"]):
        kinds = dict(
            zip(("copy kind", "src kind", "dst kind"), (match[1], *(match[n].lower() for n in (2, 3))), strict=True)
        )
        return {**event, "name": "Memcpy", "args": {**args, **kinds}}
    if event["name"].startswith("Memset"):
        return {**event, "name": "Memset", "args": {**args, "memory kind": 3}}
    return event


@pytest.mark.parametrize(
    ("scenario", "codes"), [("pageable_copy", {"DL003"}), ("exposed_copy", {"DL004"}), ("blocking_copy", {"HS002"})]
)
def test_findings_are_the_same(example: GetExample, tmp_path: Path, scenario: str, codes: set[str]) -> None:
    kineto = example(scenario)
    document = json.loads(kineto.path.read_bytes())
    document["traceEvents"] = [rewritten(event) for event in document["traceEvents"]]
    names = {event["name"] for event in document["traceEvents"] if event.get("cat", "").startswith("gpu_mem")}
    assert names <= {"Memcpy", "Memset"}
    file = tmp_path / kineto.path.name
    file.write_text(json.dumps(document))

    result = analyze(str(file))
    assert codes <= {finding.code for finding in result.findings}
    assert result.findings == kineto.result.findings
    assert result.copies == kineto.result.copies
    assert result.kernels == kineto.result.kernels


@pytest.mark.parametrize(
    ("category", "name", "args", "label"),
    [
        ("gpu_memcpy", "Memcpy", ("HtoD", "pageable", "device"), "Memcpy HtoD (Pageable -> Device)"),
        ("gpu_memcpy", "Memcpy", ("DtoH", "device_static", "pinned"), "Memcpy DtoH (Device Static -> Pinned)"),
        ("gpu_memcpy", "Memcpy", (10, "device", 3), "Memcpy PtoP (Device -> Device)"),  # numbers of CUPTI's kinds
        ("gpu_memcpy", "Memcpy", ("HtoD", "new memory", "device"), "Memcpy HtoD"),
        ("gpu_memcpy", "Memcpy", ("sideways", "pageable", "device"), "Memcpy"),
        ("gpu_memcpy", "Memcpy", (99, None, ["x"]), "Memcpy"),
        ("gpu_memcpy", "Memcpy", (), "Memcpy"),
        ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", ("DtoH", "x", "y"), "Memcpy HtoD (Pinned -> Device)"),
        ("gpu_memset", "Memset", (3,), "Memset (Device)"),
        ("gpu_memset", "Memset", (), "Memset"),
        ("kernel", "Memcpy2", ("HtoD", "pageable", "device"), "Memcpy2"),
    ],
)
def test_labels(category: str, name: str, args: tuple[Any, ...], label: str) -> None:
    keys = ("memory kind",) if category == "gpu_memset" else ("copy kind", "src kind", "dst kind")
    trace = read([span(category, name, 0, 1, **dict(zip(keys, args, strict=False)))])
    assert [trace.names[code] for code in trace.gpu.name] == [label]
    assert trace.meta.lost_events == 0
