"""Reads Dynamo's own notes: counters, graph breaks with their stacks, and the metrics of the last compilations.

They are private parts of torch that change between versions, so whatever is missing or has another form is left out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from ..constructions import name_in_trace
from .cuda_graphs import describe_recordings

MOST_TEXT = 2_000  # characters of a reason
MOST_FRAMES = 12  # of a stack, the innermost ones
MOST_BREAKS = 200
MOST_FIELD = 300

_OWN = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "")
COUNTERS = ("stats", "frames", "graph_break", "unimplemented", "inductor")
_INDUCTOR = ("cudagraph_skips", "cudagraph_partitions", "fxgraph_cache_hit", "fxgraph_cache_miss")
METRICS = (
    "co_name",
    "co_filename",
    "co_firstlineno",
    "recompile_reason",
    "fail_type",
    "fail_reason",
    "cudagraph_skip_reason",
    "is_forward",
    "is_runtime",
    "duration_us",
    "dynamo_cumulative_compile_time_us",
    "aot_autograd_cumulative_compile_time_us",
    "inductor_cumulative_compile_time_us",
    "inductor_code_gen_cumulative_compile_time_us",
    "triton_compile_time_us",
    "backward_cumulative_compile_time_us",
    "runtime_triton_autotune_time_us",
    "runtime_cudagraphify_time_us",
    "entire_frame_compile_time_s",
    "backend_compile_time_s",
    "inductor_compile_time_s",
    "code_gen_time_s",
)


def describe_dynamo() -> dict[str, Any] | None:
    """None if torch.compile was not used."""
    module = sys.modules.get("torch._dynamo.utils")
    counters = getattr(module, "counters", None)
    if module is None or not counters:
        return None
    notes: dict[str, Any] = {}
    for kind in COUNTERS:
        if kind in counters and (counted := _counted(kind, counters[kind])):
            notes[kind] = counted
    with suppress(Exception):
        notes["breaks"] = _breaks(module.graph_break_reasons)
    with suppress(Exception):
        metrics = list(getattr(module, "_compilation_metrics"))  # noqa: B009 - private, and typed only in new versions
        notes["compilations"] = [_metrics(metric) for metric in metrics]
        notes["graphs_recorded"] = describe_recordings()
    return notes


def _counted(kind: str, counter: Any) -> dict[str, int]:
    if kind == "inductor":
        return {key: counter[key] for key in _INDUCTOR if counter.get(key)}
    return {str(key)[:MOST_FIELD]: count for key, count in counter.items()}


def _breaks(reasons: Iterable[Any]) -> list[dict[str, Any]]:
    """Graph breaks with the user's stack, the innermost frame last; equal ones together."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for reason in reasons:
        frames = [frame for frame in reason.user_stack if not frame.filename.startswith(_OWN)][-MOST_FRAMES:]
        stack = [[name_in_trace(frame.filename), frame.lineno, frame.name] for frame in frames]
        key = (reason.reason, *map(tuple, stack[-1:]))
        if key not in found and len(found) == MOST_BREAKS:
            continue
        row = found.setdefault(key, {"reason": str(reason.reason)[:MOST_TEXT], "stack": stack, "count": 0})
        row["count"] += 1
    return list(found.values())


def _metrics(one: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"id": str(getattr(one, "compile_id", None) or "")[:MOST_FIELD]}
    for name in METRICS:
        value = getattr(one, name, None)
        if value is not None:
            row[name] = value[:MOST_TEXT] if isinstance(value, str) else value
    if isinstance(file := row.get("co_filename"), str):
        row["co_filename"] = name_in_trace(file)
    return row
