"""Builds small traces event by event: one call per event, times in microseconds as in a trace file."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from typing import Any

from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.analyzer.tables.trace import Trace

Json = dict[str, Any]

PID = 100
MAIN = 1  # the default thread


def span(category: str, name: str, start: float, duration: float, tid: int | str = MAIN, **args: Any) -> Json:
    """A complete event of any category."""
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": PID,
        "tid": tid,
        "ts": start,
        "dur": duration,
        "args": args,
    }


def op(name: str, start: float, duration: float, tid: int | str = MAIN, **args: Any) -> Json:
    """A CPU operator, such as "aten::mm"."""
    return span("cpu_op", name, start, duration, tid, **args)


def annotation(name: str, start: float, duration: float, tid: int | str = MAIN, **args: Any) -> Json:
    """A `record_function` range; "ProfilerStep#0" marks a step."""
    return span("user_annotation", name, start, duration, tid, **args)


def python(name: str, start: float, duration: float, tid: int | str = MAIN) -> Json:
    """A Python frame, such as "train.py(12): load"."""
    return span("python_function", name, start, duration, tid)


def runtime(name: str, start: float, duration: float, correlation: int, tid: int | str = MAIN) -> Json:
    """A CUDA runtime call; `correlation` links it to the GPU work that it launched."""
    return span("cuda_runtime", name, start, duration, tid, correlation=correlation)


def driver(name: str, start: float, duration: float, correlation: int, tid: int | str = MAIN) -> Json:
    """A CUDA driver call, such as those that launch Triton kernels."""
    return span("cuda_driver", name, start, duration, tid, correlation=correlation)


def kernel(name: str, start: float, duration: float, correlation: int, stream: int = 7, **args: Any) -> Json:
    """A GPU kernel on device 0."""
    args = {"device": 0, "stream": stream, "correlation": correlation} | args
    return span("kernel", name, start, duration, stream, **args) | {"pid": args["device"]}


def document(events: Iterable[Any], **metadata: Any) -> bytes:
    """The text of a trace file, with the metadata before the events."""
    return json.dumps({"schemaVersion": 1, **metadata, "traceEvents": list(events)}).encode()


def read(trace: bytes | Sequence[Json], **metadata: Any) -> Trace:
    """The trace in the bytes of a file, or made of a list of events with this metadata."""
    return read_trace(io.BytesIO(trace if isinstance(trace, bytes) else document(trace, **metadata)), "trace.json")
