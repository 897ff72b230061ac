"""The device of a trace: what the file says about it, what its architecture supports, and its peak rates."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.tables.json_values import whole, word
from traceopt.analyzer.tables.trace import CUT_OFF, Trace
from traceopt.analyzer.vocabulary.accelerator import Accelerator
from traceopt.analyzer.vocabulary.accelerator_lookup import find
from traceopt.analyzer.vocabulary.architectures import Architecture, architecture, architecture_of_kernels
from traceopt.analyzer.vocabulary.event_categories import COUNTER_RANGE_CATEGORY, FOREIGN_DEVICE_CATEGORIES
from traceopt.analyzer.vocabulary.op_names import MPS_ONLY
from traceopt.result.words.vendors import CPU, OTHER, Vendor, device_name, vendor_of

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
    trace: Trace, devices: Collection[int], overrides: Mapping[str, Mapping[str, Any]] | None = None
) -> TraceDevice:
    """The device of the trace, with the properties that all its GPUs have. `devices` are the indices of those that
    worked, which may differ from the ones that the process lists.
    """
    listed = trace.meta.device_properties()
    own = [d for d in listed if d.get("id") in devices] or listed[:1]
    names = list(dict.fromkeys(word(d.get("name")) for d in own))
    mixed = len(names) > 1
    properties = own[0] if own and not mixed else {}
    unsupported = _unsupported(trace)
    vendor = _vendor(trace, unsupported)
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
        arch = architecture_of_kernels(trace.names[code] for code in distinct_values(trace.gpu.name).tolist())
    return TraceDevice(
        vendor=vendor,
        name=name or unsupported,
        count=len(listed),
        memory_bytes=memory_bytes,
        compute_capability=capability,
        arch=arch,
        accelerator=accelerator,
        multiprocessors=whole(properties.get("numSms")) or None,
        unsupported=unsupported,
        mixed=mixed,
    )


def _unsupported(trace: Trace) -> str | None:
    categories = trace.meta.categories
    for category, device in FOREIGN_DEVICE_CATEGORIES.items():
        if category in categories:
            return device
    # Gaudi's own plugin may use these too.
    for start, device in (("xpu_", "Intel XPU"), ("privateuse1_", "a private-use device")):
        if any(category.startswith(start) for category in categories):
            return device
    if MPS_ONLY in trace.names and not len(trace.gpu):
        return "Apple MPS"
    return None


def _vendor(trace: Trace, unsupported: str | None) -> Vendor:
    if unsupported:
        return OTHER
    lost = CUT_OFF in (trace.meta.damage or "") and trace.meta.device_properties()
    if not len(trace.gpu) and not lost and COUNTER_RANGE_CATEGORY not in trace.meta.categories:
        return CPU
    calls = [trace.names[code] for code in set(trace.runtime.name[:1000].tolist())]
    names = " ".join(word(d.get("name")) or "" for d in trace.meta.device_properties())
    return vendor_of(calls, names)
