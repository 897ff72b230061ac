"""What rules require of a trace, and what is said of a trace that lacks it."""

from __future__ import annotations

from collections.abc import Callable

from traceopt.analyzer.facts import Facts

STACKS_DO_NOT_FIT = "Python stacks were recorded in other steps, whose operators differ too much to tell the lines."

# How to record what an export of Nsight Systems lacks: it has no profiler whose options could be set.
_FOR_NSIGHT = {
    "ops": "No operators were recorded; run the steps inside torch.autograd.profiler.emit_nvtx().",
    "shapes": "Shapes were not recorded; run the steps inside torch.autograd.profiler.emit_nvtx(record_shapes=True).",
    "stacks": "Exports of Nsight Systems have no Python stacks; record with traceopt run or torch.profiler for those.",
    "memory": "Exports of Nsight Systems have no memory of PyTorch's allocator; record with traceopt run for that.",
}

REQUIREMENTS: dict[str, tuple[Callable[[Facts], bool], str]] = {
    "gpu": (lambda f: f.has_gpu, "No GPU work was recorded; profile with ProfilerActivity.CUDA."),
    "work": (
        lambda f: f.has_gpu or not f.quality.gpu_expected,
        "No GPU work was recorded; profile with ProfilerActivity.CUDA.",
    ),
    "cpu_only": (
        lambda f: not f.has_gpu and not f.quality.gpu_expected,
        "No GPU work was recorded; profile with ProfilerActivity.CUDA.",
    ),
    "launches": (
        lambda f: f.trace.links_launches or not f.quality.gpu_expected,
        "Nothing links GPU work to the calls that launched it; profile with ProfilerActivity.CPU and CUDA together.",
    ),
    "whole": (
        lambda f: f.quality.sampled_share is None,
        "The file holds only a sample of the events, so its idle time is not real; record the whole trace.",
    ),
    "ops": (lambda f: len(f.trace.ops) > 0, "No operators were recorded; profile with ProfilerActivity.CPU."),
    "shapes": (
        lambda f: bool((f.trace.ops.dims >= 0).any()),
        "Shapes were not recorded; profile with record_shapes=True.",
    ),
    "stacks": (lambda f: f.call_sites.recorded, "Python stacks were not recorded; profile with with_stack=True."),
    "memory": (lambda f: f.memory is not None, "Memory was not recorded; profile with profile_memory=True."),
    "memory_snapshot": (
        lambda f: f.companions.memory_snapshot is not None,
        "There is no memory snapshot; record one with traceopt run --memory-snapshot.",
    ),
    "settings": (lambda f: f.captured.recorded, "The settings of the run were not recorded; record with traceopt run."),
    "ledger": (
        lambda f: f.captured.ledger is not None,
        "Times of the steps outside the trace were not recorded; record with traceopt run.",
    ),
    "step_memory": (
        lambda f: f.captured.ledger is not None and f.captured.step_memory is not None,
        "The memory of the steps outside the trace was not recorded; record with traceopt run.",
    ),
    "start_up": (
        lambda f: f.captured.start_up is not None,
        "What the run did before its first step was not recorded; record with traceopt run.",
    ),
    "compilation": (
        lambda f: f.compilation is not None,
        "What torch.compile did was not recorded; record with traceopt run, or set TORCH_TRACE=folder.",
    ),
    "flight_recorder": (
        lambda f: f.companions.flight_recorder is not None,
        "There are no dumps of the flight recorder; set TORCH_FR_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1.",
    ),
    "gpu_samples": (
        lambda f: f.companions.gpu_samples is not None,
        "There are no samples of the GPU; install traceopt-profiler[nvml] and record with traceopt run.",
    ),
    "gpu_clocks": (
        lambda f: f.gpu_samples is not None,
        "The clocks of the GPU were not sampled; install traceopt-profiler[nvml] and record with traceopt run.",
    ),
    "device": (
        lambda f: f.device.accelerator is not None,
        'The peak rates of the device are not known; set them under `[tool.traceopt.devices."its name"]`.',
    ),
}

_OF_DEVICE = ("gpu", "work", "cpu_only", "launches")


def rules_out(facts: Facts, requirement: str) -> str | None:
    """Why this run can never meet a rule's requirement; None if it could (`lacks` then says how to record it)."""
    if requirement in _OF_DEVICE and facts.device.unsupported:
        return f"traceopt does not read the work of {facts.device.label}."
    if requirement == "compilation" and facts.compilation is None and not _may_compile(facts):
        return "Nothing is compiled in this trace." if facts.has_trace else "There is no log of torch.compile."
    if requirement == "memory_snapshot" and facts.companions.memory_snapshot is not None:
        return None
    if requirement == "memory_snapshot" and not facts.has_trace:
        return "There is no memory snapshot."
    if requirement in ("gpu", "memory_snapshot") and not _may_use_gpu(facts):
        return "This run uses no GPU."
    if (
        requirement in ("gpu_samples", "gpu_clocks")
        and facts.has_trace
        and not _may_use_gpu(facts)
        and not facts.gpu_samples
    ):
        return "This run uses no GPU."
    if requirement == "cpu_only" and facts.has_gpu:
        return "This run uses a GPU."
    if requirement == "flight_recorder" and facts.companions.flight_recorder is None:
        return "There are no dumps of the flight recorder, which PyTorch writes when a job hangs."
    return None


def _may_use_gpu(facts: Facts) -> bool:
    return facts.has_gpu or facts.quality.gpu_expected


def _may_compile(facts: Facts) -> bool:
    """The trace shows torch.compile, and no recording would have said what it did."""
    return facts.has_trace and not facts.captured.recorded and bool(facts.regions.compiled or facts.compiled_share)


def lacks(facts: Facts, requirement: str) -> str | None:
    """What a rule requires and this trace lacks, and how to record it; None if the trace has it.

    Raises KeyError for an unknown requirement.
    """
    present, sentence = REQUIREMENTS[requirement]
    if present(facts):
        return None
    if requirement == "device":
        return facts.device.how_to_set()
    if requirement == "stacks" and facts.trace.meta.detail is not None:
        return STACKS_DO_NOT_FIT
    return _FOR_NSIGHT.get(requirement, sentence) if facts.from_nsight else sentence
