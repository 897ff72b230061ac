"""Every spelling of an event category, and the table that its events go to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

GPU, RUNTIME, OP, ANNOTATION, PYTHON, SYNC, OVERHEAD, IGNORED = (
    "gpu",
    "runtime",
    "op",
    "annotation",
    "python",
    "sync",
    "overhead",
    "ignored",
)

TABLE_OF_CATEGORY: dict[str, str] = {
    "kernel": GPU,
    "Kernel": GPU,  # torch 1.8 (2021)
    "gpu_memcpy": GPU,
    "Memcpy": GPU,
    "gpu_memset": GPU,
    "Memset": GPU,
    "cuda_runtime": RUNTIME,
    "cuda_driver": RUNTIME,
    "hip_runtime": RUNTIME,
    "xpu_runtime": RUNTIME,
    "xpu_driver": RUNTIME,
    "privateuse1_runtime": RUNTIME,
    "privateuse1_driver": RUNTIME,
    "Runtime": RUNTIME,
    "cpu_op": OP,
    "Operator": OP,  # 2021; includes annotations
    "user_annotation": ANNOTATION,
    "python_function": PYTHON,
    "Python": PYTHON,
    "cuda_sync": SYNC,
    "xpu_sync": SYNC,
    "graph_host_node": SYNC,  # the stream waits for a CPU callback inside a CUDA graph
    "gpu_user_annotation": IGNORED,  # the device-side copy of a user annotation
    "Trace": IGNORED,  # the profiler's own span, not a window
    "cuda_event": IGNORED,  # when the device reached a recorded event
    "graph_event_node": IGNORED,  # the same inside a CUDA graph
    "collective_comm": IGNORED,  # the host's side of oneCCL collectives
    "xpu_scope_profiler": IGNORED,  # hardware metrics of kernels on Intel GPUs
    "overhead": OVERHEAD,  # what the profiler and the driver do in the midst of a call, without its thread
    "Overhead": OVERHEAD,
    "": IGNORED,
}

GRAPH_CALLBACK = "HostNode"  # begins the name of a CPU callback inside a CUDA graph

# Processes that a file names, counted like categories. torch_npu, msprof and XProf file the device's work below a
# process and give it no category; the legacy autograd profiler does so with all events.
_DEVICE_PROCESS = re.compile(r"Ascend Hardware|/device:(?:TPU|GPU)")
LEGACY_AUTOGRAD = frozenset({"CPU functions", "CUDA functions"})

# Devices that are recognized but not supported: their work goes to no table, and the GPU rules are off.
FOREIGN_DEVICE_CATEGORIES = {
    "mtia_ccp_events": "MTIA",
    "mtia_runtime": "MTIA",
    "mtia_insight": "MTIA",
    "hpu_op": "Gaudi (HPU)",
    "glow_runtime": "Glow",
    "Ascend Hardware": "Ascend NPU",
    "/device:TPU": "Google TPU",
    "/device:GPU": "a GPU, by XProf",  # JAX, TensorFlow, PyTorch/XLA
}
# The same by the type of PyTorch's device that holds the parameters.
FOREIGN_DEVICE_TYPES = {
    "mps": "Apple MPS",
    "xla": "an XLA device",
    "xpu": "Intel XPU",
    "hpu": "Gaudi (HPU)",
    "npu": "Ascend NPU",
    "mtia": "MTIA",
    "privateuseone": "a private-use device",
}
COUNTER_RANGE_CATEGORY = "cuda_profiler_range"  # a CUPTI counter run: kernels are serialized, durations are not real

# Readings of hardware counters every millisecond (phase "C"). Collecting them locks the GPU's clocks.
HARDWARE_COUNTERS = "hardware_counters"
# Categories that say nothing which other events do not say.
_REDUNDANT = frozenset({"gpu_user_annotation", "Trace", "", COUNTER_RANGE_CATEGORY})

MEMCPY_CATEGORIES = frozenset({"gpu_memcpy", "Memcpy"})
MEMSET_CATEGORIES = frozenset({"gpu_memset", "Memset"})
OP_CATEGORIES_WITH_ANNOTATIONS = frozenset({"Operator"})
_HIDDEN_ANNOTATION = re.compile(r"ProfilerStep#|enumerate\(DataLoader\)#|Optimizer\.|nccl:|gloo:|## ")
ARROWS = frozenset({"ac2g", "async_cpu_to_gpu", "async_gpu", "async"})  # flows from a launch to its work
INSTANTS = frozenset({"cpu_instant_event"})  # memory
FORWARD_BACKWARD_FLOWS = frozenset({"fwdbwd", "forward_backward"})


def device_process(name: str) -> str | None:
    """The key in `FOREIGN_DEVICE_CATEGORIES` of a process that stands for a device: of "/device:TPU:0"; else None."""
    found = _DEVICE_PROCESS.match(name)
    return found[0] if found else None


def is_annotation(name: str) -> bool:
    """Whether an event is an annotation, in a category that mixes operators and annotations (2021)."""
    return _HIDDEN_ANNOTATION.match(name) is not None


_DEVTOOLS = re.compile(r"\b(?:devtools\.|blink|v8\b|toplevel|cc\b)")
_OF_PYTORCH = frozenset(TABLE_OF_CATEGORY) - {""} | FOREIGN_DEVICE_CATEGORIES.keys() | {COUNTER_RANGE_CATEGORY}


def of_pytorch(categories: Iterable[str]) -> bool:
    """Whether a category is one of the PyTorch profiler."""
    return any(category in _OF_PYTORCH or category.startswith(("xpu_", "privateuse1_")) for category in categories)


def other_format(categories: Mapping[str, int]) -> str | None:
    """What wrote a file without any category of the PyTorch profiler; None if it has one, or if that is unknown."""
    if of_pytorch(categories):
        return None
    if LEGACY_AUTOGRAD & categories.keys():
        return "the legacy autograd profiler (torch.autograd.profiler)"
    return "Chrome DevTools" if any(map(_DEVTOOLS.search, categories)) else None


def unread(categories: dict[str, int]) -> dict[str, int]:
    """The categories, with their number of events, whose content no table keeps."""
    return {
        category: count
        for category, count in categories.items()
        if TABLE_OF_CATEGORY.get(category, IGNORED) == IGNORED
        and category not in _REDUNDANT
        and category not in FOREIGN_DEVICE_CATEGORIES
    }
