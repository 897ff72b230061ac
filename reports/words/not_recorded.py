"""What a section says when it has nothing to show: how to record it, or that there was none."""

from __future__ import annotations

from traceopt.reports.words.sentences import on_cpu
from traceopt.result.document import Result

_NO_GPU_HERE = "Not applicable: this step ran on the CPU."
_RECORD_GPU = (
    "Not recorded: pass activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] to the profiler (XPU on Intel GPUs)."
)
_RECORD_SHAPES = "Not recorded: set record_shapes=True in the profiler."
_RECORD_MEMORY = "Not recorded: set profile_memory=True in the profiler."

_READ_VENDORS = ("nvidia", "amd", "intel")

CPU_COMPOSITION = "What the peak holds is not told of a run on the CPU: its totals begin with the recording."
NO_OPS = "Not recorded: pass ProfilerActivity.CPU among the profiler's activities."
NO_STEP = "Not available: no complete step in the trace. Call prof.step() once in each training step."


_RECORD_STACKS = "Line not known: record with with_stack=True."


def missing_line(result: Result) -> str | None:
    """How to get source lines; None where stacks were recorded and a finding has no single line."""
    return None if result.run.recorded.stacks else _RECORD_STACKS


def missing_kernels(result: Result) -> str:
    if on_cpu(result):
        return _NO_GPU_HERE
    device = result.run.device
    if device is not None and device.vendor not in _READ_VENDORS:
        return "Not available: kernels of this device are not read."
    return "No GPU kernel ran in the measured steps." if result.run.recorded.gpu else _RECORD_GPU


def missing_gemms(result: Result) -> str:
    if on_cpu(result):
        return _NO_GPU_HERE if result.run.recorded.shapes else _RECORD_SHAPES
    if not result.run.recorded.shapes:
        return _RECORD_SHAPES
    return "No matrix multiplication ran in the measured steps."


def missing_memory(result: Result) -> str:
    if not result.run.recorded.memory:
        return _RECORD_MEMORY
    return "Not available: no memory event lies in the shown step."


def recorded_flags(result: Result) -> list[tuple[str, bool]]:
    """The profiler's settings by the name a user types, and whether this trace has what they record."""
    recorded = result.run.recorded
    gpu = [] if on_cpu(result) else [("GPU activity", recorded.gpu)]
    return [
        *gpu,
        ("record_shapes", recorded.shapes),
        ("with_stack", recorded.stacks),
        ("profile_memory", recorded.memory),
    ]
