"""Events of known categories are decoded into narrow types: the tables are the same as with the general types."""

from __future__ import annotations

import io
from typing import Any

import pytest
from same_traces import assert_same_trace

from fixtures.generate import generate
from traceopt.analyzer.reading import event_types
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.analyzer.vocabulary import event_categories
from traceopt.testing.events import Json, annotation, document, kernel, op, python, runtime, span


def both_ways(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads a trace with and without the narrow types."""
    narrow = read_trace(io.BytesIO(text), "trace")
    monkeypatch.setattr(event_types, "_decode_known", event_types._decode_any)
    general = read_trace(io.BytesIO(text), "trace")
    assert_same_trace(narrow, general)


@pytest.mark.parametrize("scenario", ["exposed_allreduce", "memory_pressure", "gc_pause"])
def test_generated_traces(scenario: str, monkeypatch: pytest.MonkeyPatch) -> None:
    both_ways(bytes(document(generate(scenario).events)), monkeypatch)


COLLECTIVE = {"Collective name": "allreduce", "In msg nelems": 8, "dtype": "Float", "Group size": 2, "Seq": 3}
SHAPES = {"Input Dims": [[2, 3], []], "Input type": ["float", ""], "Concrete Inputs": ["", "1"], "Call stack": ""}
INSTANT = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 2, "ts": 5.5, "s": "t"}
KNOWN: list[Json] = [
    kernel("a", 1.5, 2, 1, grid=[1, 2, 3], block=[4, 5, 6], **COLLECTIVE),
    span("gpu_memcpy", "copy", 2, 1, 7, device=0, stream=7, correlation=2, bytes=100),
    runtime("cudaLaunchKernel", 1, 1, 1),
    op("aten::add", 0.5, 3, **SHAPES, **{"Sequence number": 5, "Fwd thread id": 1, "Ev Idx": 9}),
    annotation("ProfilerStep#1", 0, 9, **{"Ev Idx": 8}),
    python("train.py(3): step", 0, 8),
    span("cuda_sync", "Stream Sync", 3, 1, 7, device=0, stream=7, correlation=4, wait_on_stream=3),
    {"ph": "s", "id": 1, "pid": 1, "tid": 2, "ts": 1, "cat": "fwdbwd", "name": "fwdbwd"},
    {"ph": "f", "id": 1, "pid": 1, "tid": 3, "ts": 2, "cat": "fwdbwd", "name": "fwdbwd", "bp": "e"},
    {"ph": "s", "id": 2, "pid": 1, "tid": 2, "ts": 1, "cat": "ac2g", "name": "ac2g"},
    INSTANT | {"args": {"Bytes": 512, "Addr": 7, "Total Allocated": 512, "Total Reserved": 1024, "Device Type": 1}},
    INSTANT | {"name": "[OutOfMemory]", "args": {}},
]
ODD: list[Json] = [
    {"ph": "M", "name": "thread_name", "pid": 100, "tid": 1, "args": {"name": "main"}},
    {"ph": "B", "cat": "cpu_op", "name": "begun", "pid": 1, "tid": 2, "ts": 1},
    {"ph": "X", "cat": "ac2g", "name": "no flow", "pid": 1, "tid": 2, "ts": 1, "dur": 1},
    {"ph": "X", "name": "no category", "pid": 1, "tid": 2, "ts": 1, "dur": 1},
    span("a category of tomorrow", "b", 1, 1),
    op("text id", 1, 1, "stream 7"),
    op("aten::add", "no time", 1),  # type: ignore[arg-type]
    span("kernel", "no device", 1, 1, 7, grid="grid(128,)", device=None),
]


def test_a_type_for_each_category_that_is_known() -> None:
    decoded = event_types._decode_known(document(KNOWN).split(b'"traceEvents": ')[1][:-1])
    assert [type(event).__name__ for event in decoded if isinstance(event, event_types.Slice)] == []
    assert len(decoded) == len(KNOWN)


@pytest.mark.parametrize("odd", [None, *range(len(ODD))])
def test_every_kind_of_event(odd: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    both_ways(document(KNOWN if odd is None else [*KNOWN, ODD[odd], *KNOWN]), monkeypatch)


@pytest.mark.parametrize("category", sorted(event_categories.TABLE_OF_CATEGORY))
def test_every_category(category: str, monkeypatch: pytest.MonkeyPatch) -> None:
    args: dict[str, Any] = {"device": 0, "stream": 7, "correlation": 3} | SHAPES
    both_ways(document([*KNOWN, span(category, "one", 4, 2, **args)]), monkeypatch)
