"""What the document says about the run: the device with its peak rates, the runtime, the recorded settings."""

from __future__ import annotations

from typing import Literal

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.timeline.call_tree import ANNOTATION, OP
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.vocabulary.accelerator import Accelerator
from traceopt.result.sections.run import Device, PeakRate, Setting
from traceopt.result.words.vendors import VENDORS

LOADER_WORKERS = "DataLoader workers"  # a setting


def device(facts: Facts) -> Device:
    found = facts.device
    rates = peaks(found.accelerator) if found.accelerator else []
    used = len(facts.gpu.devices)
    return Device(found.vendor.key, found.name, found.count, found.memory_bytes, found.compute_capability, rates, used)


def peaks(accelerator: Accelerator) -> list[PeakRate]:
    """Every peak rate of the device that is known, with its source."""
    units: dict[str, Literal["TOP/s", "GB/s"]] = {"int8": "TOP/s", "hbm_gb_per_s": "GB/s", "link_gb_per_s": "GB/s"}
    names = {"hbm_gb_per_s": "memory", "link_gb_per_s": "link"}
    return [
        PeakRate(
            figure=names.get(figure, figure),
            rate=float(rate),
            unit=units.get(figure, "TFLOP/s"),
            source=accelerator.source_of(figure),
            verified=accelerator.is_verified(figure),
        )
        for figure, rate in accelerator.figures.items()
    ]


def gpu_runtime(facts: Facts) -> str | None:
    """The GPU runtime under PyTorch: "CUDA 12.4", "ROCm 6.4"."""
    versions = (vendor.runtime.version(facts.trace.meta.header) for vendor in VENDORS if vendor.runtime is not None)
    return next((version for version in versions if version is not None), None)


def settings(facts: Facts) -> list[Setting]:
    """The settings that `traceopt run` recorded, or the trace shows; GPU settings only in runs with a GPU."""
    environment = facts.captured.environment
    found: dict[str, object] = {
        "CPU cores": environment.cores,
        "threads per operator": environment.threads,
        LOADER_WORKERS: _workers(facts),
    }
    if facts.has_gpu:
        found |= {
            "TF32 for matmuls": environment.matmul_tf32,
            "TF32 for convolutions": environment.conv_tf32,
            "cudnn.benchmark": environment.cudnn_benchmark,
        }
    found |= {
        "deterministic algorithms": environment.deterministic,
        "anomaly detection": environment.anomaly_mode,
        "Python development mode": environment.python_debug,
        **environment.variables,
    }
    words = {True: "on", False: "off"}
    return [
        Setting(name, words[value] if isinstance(value, bool) else str(value))
        for name, value in found.items()
        if value is not None
    ]


def _workers(facts: Facts) -> int | str | None:
    """Of the training loader. Without a recorded number, the names of its waits tell whether it has any."""
    loader = facts.captured.training_loader
    if loader is not None:
        return loader.num_workers
    alone, helped = (
        bool(facts.regions.named(kind, ANNOTATION, OP).any())
        for kind in (op_names.is_single_process_dataloader, op_names.is_multiprocess_dataloader)
    )
    if alone and not helped:
        return 0
    return "some (number not recorded)" if helped and not alone else None
