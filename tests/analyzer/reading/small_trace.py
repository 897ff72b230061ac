"""A small trace, and what the tables of every trace guarantee."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.tables.schema import Spans, Table
from traceopt.analyzer.tables.trace import Trace
from traceopt.testing.events import PID, annotation, kernel, op, python, runtime

TABLES = ("gpu", "runtime", "ops", "annotations", "python", "sync", "memory", "flows")

SMALL = [
    annotation("ProfilerStep#3", 0, 100),
    python("train.py(3): step", 1, 90),
    op("aten::mm", 2, 10, **{"Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"]}),
    runtime("cudaLaunchKernel", 3, 1, 7),
    kernel("sgemm", 5, 20, 7, grid=[2, 1, 1], block=[128, 1, 1]),
    op("aten::add", 30, 2.5),
]
META = [
    {"ph": "M", "name": "process_name", "pid": PID, "tid": 0, "ts": 0, "args": {"name": "python"}},
    {"ph": "M", "name": "thread_name", "pid": PID, "tid": 1, "ts": 0, "args": {"name": "main"}},
]


def names(trace: Trace, table: str) -> list[str]:
    return [trace.names[code] for code in getattr(trace, table).name]


def well_formed(trace: Trace) -> None:
    """What every table guarantees."""
    starts = []
    for field in TABLES:
        table: Table = getattr(trace, field)
        for column, dtype in table.SCHEMA.items():
            base, _, width = dtype.partition("x")
            array = getattr(table, column)
            assert array.dtype == np.dtype(base), (field, column)
            assert array.shape == ((len(table), int(width)) if width else (len(table),))
        if len(table):
            time = table.start if isinstance(table, Spans) else table.time  # type: ignore[attr-defined]
            assert (np.diff(time) >= 0).all()
            starts.append(int(time[0]))
        if isinstance(table, Spans):
            assert (table.duration >= 0).all()
            assert ((table.name >= 0) & (table.name < len(trace.names))).all()
        if "thread" in table.SCHEMA and len(table):
            assert 0 <= table.thread.min() <= table.thread.max() < len(trace.threads)  # type: ignore[attr-defined]
    assert min(starts, default=0) == 0
    assert all(isinstance(text, str) for text in trace.names + trace.texts)
    "".join(trace.names + trace.texts).encode()
