"""Dynamo's metrics of one compilation (`torch._dynamo.utils.CompilationMetrics`) as a row of the compilation table.

Both a TORCH_TRACE log and `traceopt run` record them. Torch changed the names of the times twice, so each has several.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from traceopt.analyzer.tables.compilation import Compiled, FrameKey, GraphSkip
from traceopt.analyzer.tables.json_values import MOST_US, amount, time_ns, whole, word
from traceopt.analyzer.vocabulary.python_frames import parse_frame
from traceopt.analyzer.vocabulary.torch_compile import is_resumed, parse_guard, parse_reason, parse_skip, user_function
from traceopt.result.finding import Location

MOST_LINE = 10_000_000

# The time of a part of the compiler and of all parts inside it, by the part; in us, and in s before torch 2.6.
_NESTED = {
    "dynamo": ("dynamo_cumulative_compile_time_us", "entire_frame_compile_time_s"),
    "aot_autograd": (
        "aot_autograd_cumulative_compile_time_us",
        "backend_compile_time_s",
        "backward_cumulative_compile_time_us",
    ),
    "inductor": ("inductor_cumulative_compile_time_us", "inductor_compile_time_s"),
    "code_generation": ("inductor_code_gen_cumulative_compile_time_us", "code_gen_time_s"),
    "kernel_compilation": ("triton_compile_time_us",),
}
_OUTSIDE = {"autotuning": "runtime_triton_autotune_time_us", "cuda_graph_recording": "runtime_cudagraphify_time_us"}


def compiled_row(
    metrics: Mapping[str, Any], key: FrameKey, *, backward: bool = False, guard: str | None = None
) -> Compiled:
    """`guard` is the message about the failed guard; without it, the metrics' own."""
    function = word(metrics.get("co_name"))
    file = word(metrics.get("co_filename"))
    failure, skip = metrics.get("fail_reason"), metrics.get("cudagraph_skip_reason")
    guard = guard or metrics.get("recompile_reason")
    return Compiled(
        key=key,
        backward=backward,
        resumed=function is not None and is_resumed(function),
        function=user_function(function) if function is not None else None,
        site=_begin(file, metrics.get("co_firstlineno"), function),
        duration_ns=_duration_ns(metrics),
        guard=parse_guard(guard, file) if isinstance(guard, str) and guard.strip() else None,
        failure=parse_reason(failure) if isinstance(failure, str) and failure.strip() else None,
        graph_skip=skip if isinstance(skip, str) else None,
    )


def phases_of(metrics: Mapping[str, Any]) -> dict[str, int]:
    """The time of each part of the compiler without the parts inside it, ns."""
    nested = {name: _first_ns(metrics, keys) for name, keys in _NESTED.items()}
    known = [(name, time) for name, time in nested.items() if time is not None]
    inner = [*(time for _, time in known[1:]), 0]
    phases = {name: max(0, time - within) for (name, time), within in zip(known, inner, strict=False)}
    for name, key in _OUTSIDE.items():
        if time := time_ns(metrics.get(key)):
            phases[name] = time
    return phases


def graph_skip(row: Compiled) -> GraphSkip | None:
    """The CUDA graph that was skipped for this compilation."""
    if row.graph_skip is None:
        return None
    reason, site = parse_skip(row.graph_skip)
    return GraphSkip(reason, site or row.site, 1)


def _begin(file: str | None, line: object, function: str | None) -> Location | None:
    number = whole(line, MOST_LINE)
    if not file or not number or not function:
        return None
    return parse_frame(f"{file}({number}): {user_function(function)}")


def _duration_ns(metrics: Mapping[str, Any]) -> int | None:
    if (time := time_ns(metrics.get("duration_us"))) is not None:
        return time
    return _first_ns(metrics, _NESTED["dynamo"])


def _first_ns(metrics: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    for key in keys:
        value = metrics.get(key)
        time = time_ns(value) if key.endswith("_us") else _seconds_ns(value)
        if time is not None:
            return time
    return None


def _seconds_ns(value: object) -> int | None:
    seconds = amount(value, MOST_US / 1e6)
    return None if seconds is None else round(seconds * 1e9)
