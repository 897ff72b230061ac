"""The categories of spans in the timeline: each has one color, and one line in the key below the chart."""

from __future__ import annotations

from msgspec import Struct


class SpanCategory(Struct, frozen=True):
    """`key` names it in the document. `color` is one of palette.css."""

    key: str
    color: str
    label: str


CPU = SpanCategory("cpu", "cpu", "CPU working")
PYTHON_CODE = SpanCategory("python", "python", "Python")
ANNOTATED = SpanCategory("annotation", "range", "Annotation")
CALL = SpanCategory("runtime", "launch", "Launches and other calls")
WAIT = SpanCategory("wait", "wait", "CPU waiting")
LOADER = SpanCategory("loader", "loader", "Waiting for data")
INPUT = SpanCategory("input", "input", "Preparing input, post-processing")
FORWARD_PASS = SpanCategory("forward", "compute", "Forward and other operators")
BACKWARD_PASS = SpanCategory("backward", "backward", "Backward")
UPDATE = SpanCategory("optimizer", "copy", "Optimizer")
LOG = SpanCategory("logging", "logging", "Logging")
SAVE = SpanCategory("checkpoint", "checkpoint", "Checkpoint")
COLLECTION = SpanCategory("gc", "gc", "Garbage collection")
ALLOCATOR = SpanCategory("allocator", "driver", "Allocating device memory")
GPU_COMPUTE = SpanCategory("compute", "compute", "GPU compute")
TRANSFER = SpanCategory("comm", "comm", "Communication")
COPY = SpanCategory("copy", "copy", "Copies")

SPAN_CATEGORIES = tuple(row for row in list(globals().values()) if isinstance(row, SpanCategory))
