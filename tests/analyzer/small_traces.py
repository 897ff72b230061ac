"""Small traces for tests: events in a line each, times in microseconds as a file has them."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.analyzer.tables.trace import Trace

Json = dict[str, Any]

PID = 100
MAIN = 1  # the thread of events that name none


def span(category: str, name: str, start: float, duration: float, tid: int | str = MAIN, **args: Any) -> Json:
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
    return span("cpu_op", name, start, duration, tid, **args)


def annotation(name: str, start: float, duration: float, tid: int | str = MAIN, **args: Any) -> Json:
    return span("user_annotation", name, start, duration, tid, **args)


def python(name: str, start: float, duration: float, tid: int | str = MAIN) -> Json:
    return span("python_function", name, start, duration, tid)


def runtime(name: str, start: float, duration: float, correlation: int, tid: int | str = MAIN) -> Json:
    return span("cuda_runtime", name, start, duration, tid, correlation=correlation)


def driver(name: str, start: float, duration: float, correlation: int, tid: int | str = MAIN) -> Json:
    return span("cuda_driver", name, start, duration, tid, correlation=correlation)


def kernel(name: str, start: float, duration: float, correlation: int, stream: int = 7, **args: Any) -> Json:
    args = {"device": 0, "stream": stream, "correlation": correlation} | args
    return span("kernel", name, start, duration, stream, **args) | {"pid": args["device"]}


def document(events: Sequence[Any], **metadata: Any) -> bytes:
    """A trace file's text, with the metadata before the events."""
    return json.dumps({"schemaVersion": 1, **metadata, "traceEvents": list(events)}).encode()


def read(trace: bytes | Sequence[Json], **metadata: Any) -> Trace:
    """The trace of a file's bytes, or of a list of events with the metadata."""
    return read_trace(io.BytesIO(trace if isinstance(trace, bytes) else document(trace, **metadata)), "trace.json")


def assert_same_trace(found: Trace, expected: Trace) -> None:
    """Equal tables, dictionaries and metadata."""
    assert (found.names, found.texts, found.threads) == (expected.names, expected.texts, expected.threads)
    assert found.meta == expected.meta
    for name in ("gpu", "runtime", "ops", "annotations", "python", "sync", "memory", "flows"):
        table, wanted = getattr(found, name), getattr(expected, name)
        for column in wanted.SCHEMA:
            assert np.array_equal(getattr(table, column), getattr(wanted, column)), (name, column)
