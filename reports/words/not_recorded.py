"""The sentence for a section with nothing to show: how to record it, or that there was nothing."""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.reports.words.step_words import on_cpu
from traceopt.result.document import Check, Result
from traceopt.result.words.quantities import percent
from traceopt.result.words.vendors import vendor_called

_NO_GPU_HERE = "Not applicable: this step ran on the CPU."
_RECORD_GPU = (
    "Not recorded: pass activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] to the profiler (XPU on Intel GPUs)."
)
_RECORD_SHAPES = "Not recorded: set record_shapes=True in the profiler."
_RECORD_MEMORY = "Not recorded: set profile_memory=True in the profiler."

CPU_COMPOSITION = (
    "Peak contents are unavailable for CPU runs: memory totals only count from the start of the recording."
)
NO_OPS = "Not recorded: add ProfilerActivity.CPU to the profiler's activities."
NO_STEP = "Not available: the trace has no complete step. Call prof.step() once per training step."
_RECORD_STACKS = "Unknown line: record with with_stack=True."
_NO_STACKS = "Unknown line: exports of Nsight Systems have no Python stacks."
_NO_MEMORY = "Not recorded: exports of Nsight Systems have no memory of PyTorch's allocator."
_RECORD_NVTX_SHAPES = "Not recorded: run the steps inside torch.autograd.profiler.emit_nvtx(record_shapes=True)."

VIA_GRAPH = {
    "capture": "via graph",
    "annotation": "via graph, annotated",
    "compile_log": "via graph, from the compile log",
    "launch_stack": "via graph, from the launch stack",
    "replay": "graph replay",
}
_GRAPHS_WORTH_A_WORD = 0.01  # of the GPU's time


def no_breakdown(result: Result) -> str:
    """Why the parts of the step are not known."""
    return NO_STEP if result.step.typical_us is None else "Not available: the file does not hold what the GPU did."


def graph_operators(result: Result) -> str | None:
    """What the table says about kernels of CUDA graphs, and how to record the rest; None if there are next to none."""
    share, known = result.gpu.graph_share, result.gpu.graph_known_share
    if share is None or known is None or share < _GRAPHS_WORTH_A_WORD:
        return None
    said = f"CUDA graphs launch {percent(share)} of this work."
    if known > 1 - _GRAPHS_WORTH_A_WORD:
        return f"{said} Their operators come from the capture."
    unknown = "For the rest" if known > _GRAPHS_WORTH_A_WORD else "For it"
    return (
        f"{said} {unknown}, only the line of the replay is known: record the capture in the same trace (start the "
        "profiler before the first call), or capture with torch.cuda.graph(graph, enable_annotations=True) and merge "
        "the annotations with torch.cuda._annotate_cuda_graph_trace. For kernels of torch.compile, a log of the same "
        "run names operators and lines (TORCH_TRACE=folder INDUCTOR_PROVENANCE=1)."
    )


def missing_line(result: Result) -> str | None:
    """How to get source lines. None if stacks were recorded, but the finding has no single line."""
    if result.run.recorded.stacks:
        return None
    return _NO_STACKS if result.run.recorded.nsight else _RECORD_STACKS


def missing_kernels(result: Result) -> str:
    if on_cpu(result):
        return _NO_GPU_HERE
    device = result.run.device
    if device is not None and not vendor_called(device.vendor).is_read:
        return "Not available: traceopt does not read kernels of this device."
    return "No GPU kernel ran in the measured steps." if result.run.recorded.gpu else _RECORD_GPU


def missing_gemms(result: Result) -> str:
    if on_cpu(result):
        return _NO_GPU_HERE if result.run.recorded.shapes else _RECORD_SHAPES
    if not result.run.recorded.shapes:
        return _RECORD_NVTX_SHAPES if result.run.recorded.nsight else _RECORD_SHAPES
    if result.gemm_known_share is not None:
        return (
            "Not available: the matmul kernels have no operator with shapes of its own, as in batches of another size."
        )
    return "No matrix multiplication ran in the measured steps."


def missing_memory(result: Result) -> str:
    if not result.run.recorded.memory:
        return _NO_MEMORY if result.run.recorded.nsight else _RECORD_MEMORY
    return "Not available: the step shown has no memory events."


def left_out_sections(result: Result) -> list[tuple[str, str]]:
    """Sections that the report does not have because something was not recorded, and how to record it."""
    reasons = [
        ("Matmuls", None if result.gemms or result.cpu else missing_gemms(result)),
        ("GPU kernels", None if result.kernels else missing_kernels(result)),
        ("Operators", None if result.ops else NO_OPS),
        ("Memory", None if result.memory.curve else missing_memory(result)),
    ]
    return [(name, reason) for name, reason in reasons if reason is not None and reason != _NO_GPU_HERE]


def recorded_flags(result: Result) -> list[tuple[str, bool]]:
    """The profiler settings by the names that users type, and whether this trace has what they record."""
    recorded = result.run.recorded
    gpu = [] if on_cpu(result) else [("GPU activity", recorded.gpu)]
    return [
        *gpu,
        ("record_shapes", recorded.shapes),
        ("with_stack", recorded.stacks),
        ("profile_memory", recorded.memory),
    ]


def by_reason(checks: Sequence[Check]) -> list[tuple[str, list[Check]]]:
    """Checks that share a reason, such as what was not recorded, together, in the order of the first of each."""
    groups: dict[str, list[Check]] = {}
    for check in checks:
        groups.setdefault(check.reason, []).append(check)
    return list(groups.items())
