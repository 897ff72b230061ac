"""The device of a trace: what the file says about it, what its architecture supports, and its peak rates."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.tables.json_values import whole, word
from traceopt.analyzer.tables.trace import CUT_OFF, Trace
from traceopt.analyzer.vocabulary.accelerator import Accelerator
from traceopt.analyzer.vocabulary.accelerator_lookup import find
from traceopt.analyzer.vocabulary.architectures import (
    Architecture,
    architecture,
    architecture_of_kernels,
    capability_of,
)
from traceopt.analyzer.vocabulary.event_categories import (
    COUNTER_RANGE_CATEGORY,
    FOREIGN_DEVICE_CATEGORIES,
    FOREIGN_DEVICE_TYPES,
)
from traceopt.analyzer.vocabulary.op_names import SCALAR_READ, is_cpu_math, is_gpu_only, is_mps_only
from traceopt.analyzer.vocabulary.runtime_calls import is_allocation, is_launch
from traceopt.result.words.vendors import CPU, NVIDIA, OTHER, Vendor, device_name, vendor_of

_OLDEST_OF_TRITON = (7, 0)
_WAITED_NS = 10_000  # of a read: 0.3 us on a CPU, 15 us to milliseconds where it waits
_FEWEST_WAITS = 5  # a CPU that serves other programs makes some reads long, too
_WAIT_SHARE = 0.03  # of the recording
_HIGHEST_VERSION = 1000  # upper limit of compute capability numbers


class TraceDevice(Struct, frozen=True):
    """`accelerator` is None if the device is not in the peak table; efficiencies are then not measured."""

    vendor: Vendor
    name: str | None
    count: int
    memory_bytes: int | None
    compute_capability: str | None
    arch: Architecture | None
    accelerator: Accelerator | None
    multiprocessors: int | None
    unsupported: str | None  # name of an accelerator that the rules do not support
    mixed: bool = False  # GPUs of different models, which have no figures in common

    @property
    def half(self) -> str:
        """The 16-bit type for its matmuls, as PyTorch calls it."""
        return "float16" if self.arch is not None and not self.arch.has_bf16 else "bfloat16"

    @property
    def rounds_fp32(self) -> bool:
        """Whether FP32 tensors on its matrix units are multiplied in TF32, if the kernel's name does not tell."""
        return self.vendor is NVIDIA if self.arch is None else not self.arch.fp32_on_matrix_cores

    @property
    def compiles(self) -> bool:
        """Whether torch.compile can make code for it. It needs Triton, which supports no GPU older than Volta."""
        capability = capability_of(self.arch.name) if self.arch is not None else None
        return self.vendor is not NVIDIA or capability is None or capability >= _OLDEST_OF_TRITON

    @property
    def label(self) -> str:
        """The device in a sentence: "NVIDIA H100", or "NVIDIA GPU" if the file does not name it."""
        return device_name(self.name, self.vendor.key)

    def how_to_set(self, figure: str = "bf16") -> str:
        """How to set the peak rates of this device, or one of them, if they are not known."""
        if self.mixed:
            return "The GPUs are of different models, so that their rates are not compared with one peak."
        if not self.name:
            return "The trace does not name its device, so its peak rates are not known."
        table = f"[tool.traceopt.devices.{json.dumps(self.name, ensure_ascii=False)}]"
        lacks = (
            f"The {figure} peak of {self.name} is not known. Set it"
            if self.accelerator
            else f"The peak rates of {self.name} are not known. Set them"
        )
        return f"{lacks} in pyproject.toml under {table}, for example {figure} = 312 and hbm_gb_per_s = 2039."


def find_device(
    trace: Trace,
    devices: Collection[int],
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
    trained_on: str | None = None,
    gpus: Sequence[Mapping[str, Any]] = (),
) -> TraceDevice:
    """The device of the trace, with the properties that all its GPUs have. `devices` are the indices of those that
    worked, which may differ from the ones that the process lists. `trained_on` is the type of the device that holds the
    parameters, as PyTorch calls it; None if that was not recorded. `gpus` are those of the machine.
    """
    listed = trace.meta.device_properties() or (gpus if trained_on == "cuda" else [])
    own = [d for d in listed if d.get("id") in devices] or listed[:1]
    names = list(dict.fromkeys(word(d.get("name")) for d in own))
    mixed = len(names) > 1
    properties = own[0] if own and not mixed else {}
    kernels = [trace.names[code] for code in distinct_values(trace.gpu.name).tolist()]
    unsupported = _unsupported(trace, trained_on)
    if unsupported:
        vendor = OTHER
    elif _uses_gpu(trace, trained_on):
        vendor = _vendor(trace, kernels)
    else:
        vendor = OTHER if trained_on is None and _waits_in_reads(trace) else CPU
    major, minor = (whole(properties.get(name), _HIGHEST_VERSION) for name in ("computeMajor", "computeMinor"))
    known = major is not None and minor is not None
    capability = f"{major}.{minor}" if known else None
    memory_bytes = whole(properties.get("totalGlobalMem")) or None
    name = " and ".join(filter(None, names)) or None
    accelerator = find(name, capability, memory_bytes, overrides) if vendor.is_read and not mixed else None
    arch = accelerator.architecture if accelerator else None
    if arch is None and known and vendor.is_read:
        arch = architecture(vendor, int(major), int(minor))  # type: ignore[arg-type]
    if arch is None and not listed and vendor.is_read:
        arch = architecture_of_kernels(kernels)
    return TraceDevice(
        vendor=vendor,
        name=unsupported or name,
        count=len(listed),
        memory_bytes=memory_bytes,
        compute_capability=capability,
        arch=arch,
        accelerator=accelerator,
        multiprocessors=whole(properties.get("numSms")) or None,
        unsupported=unsupported,
        mixed=mixed,
    )


def _unsupported(trace: Trace, trained_on: str | None) -> str | None:
    categories = trace.meta.categories
    for category, device in FOREIGN_DEVICE_CATEGORIES.items():
        if category in categories:
            return device
    # Gaudi's own plugin may use these too.
    for start, device in (("xpu_", "Intel XPU"), ("privateuse1_", "a private-use device")):
        if any(category.startswith(start) for category in categories):
            return device
    if len(trace.gpu):
        return None
    if any(map(is_mps_only, trace.names)):
        return FOREIGN_DEVICE_TYPES["mps"]
    return FOREIGN_DEVICE_TYPES.get(trained_on or "")


def _uses_gpu(trace: Trace, trained_on: str | None) -> bool:
    """Whether the process used a GPU that PyTorch calls "cuda", recorded or not: operators, calls and names of NCCL say
    so, or devices are listed and nothing shows a CPU run. A process that only asks for the devices of its machine uses
    none.
    """
    listed = bool(trace.meta.device_properties())
    lost = listed and CUT_OFF in (trace.meta.damage or "")
    if len(trace.gpu) or lost or trained_on == "cuda" or COUNTER_RANGE_CATEGORY in trace.meta.categories:
        return True
    if any(name.startswith("nccl:") or is_gpu_only(name) for name in trace.names):
        return True
    if len(trace.runtime):
        called = (trace.names[code] for code in distinct_values(trace.runtime.name).tolist())
        return any(is_launch(name) or is_allocation(name) for name in called)
    return listed and trained_on is None and not any(map(is_cpu_math, trace.names))


def _waits_in_reads(trace: Trace) -> bool:
    """Whether reads of single values take so long that the host waits for a device in them."""
    reads = np.array([name == SCALAR_READ for name in trace.names] or [False])[trace.ops.name]
    waits = trace.ops.duration[reads & (trace.ops.duration >= _WAITED_NS)]
    return len(waits) >= _FEWEST_WAITS and bool(waits.sum() >= _WAIT_SHARE * trace.duration_ns)


def _vendor(trace: Trace, kernels: list[str]) -> Vendor:
    calls = [trace.names[code] for code in set(trace.runtime.name[:1000].tolist())]
    names = " ".join(word(d.get("name")) or "" for d in trace.meta.device_properties())
    return vendor_of(calls, names, kernels)
