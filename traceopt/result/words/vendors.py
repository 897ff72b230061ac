"""The vendors of accelerators: what each calls things, and what its software offers. A new vendor is one row here.

Other names from traces are in `analyzer/vocabulary`: kernels and runtime calls, and the peak rates of devices.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any

from msgspec import Struct


class Term(Enum):
    """A name that each vendor has its own word for. The value is NVIDIA's, which sentences are written in."""

    TENSOR_CORE = "Tensor Core"
    TF32 = "TF32"
    CUDA_GRAPH = "CUDA graph"
    CUDNN = "cuDNN"
    NCCL = "NCCL"
    CUPTI = "CUPTI"
    COUNTER_TOOLS = "Nsight, DCGM"
    SERVING_ENGINES = "vLLM, TGI, SGLang, TensorRT-LLM or llama.cpp"


class Runtime(Struct, frozen=True):
    """The GPU runtime under PyTorch, and how Kineto writes its version into `key`: CUDA 12040 is 12.4."""

    name: str
    key: str
    major: int
    minor: int

    def version(self, header: Mapping[str, Any]) -> str | None:
        """ "CUDA 12.4"; None if the header of the trace has no version of it."""
        number = header.get(self.key)
        if not isinstance(number, int) or number < self.major:
            return None
        return f"{self.name} {number // self.major}.{number % self.major // self.minor}"


class Vendor(Struct, frozen=True):
    """One vendor. None and empty: there is no such thing on its devices."""

    key: str
    """In documents: "nvidia"."""
    name: str
    """For people: "NVIDIA"."""
    words: Mapping[Term, str] = MappingProxyType({})
    """Its own words; a term without one is called as by NVIDIA."""
    is_read: bool = False
    """traceopt reads the work of its devices."""
    runtime: Runtime | None = None
    call_prefix: str | None = None
    """How the names of its runtime calls begin, if no other vendor's do."""
    device_words: tuple[str, ...] = ()
    """Words in the names of its devices, in lower case."""
    kernel_names: str | None = None
    """Regular expression for what only the names of its kernels have."""
    architecture_names: str | None = None
    """Regular expression for the names of its architectures, with the groups major and minor."""
    capability_name: str = "architecture"
    """What it calls the two numbers of a device's architecture."""
    numbers_devices_by_rank: bool = False
    """On a single node, each rank uses the GPU with its own number. AMD's numbers also count other devices."""
    sampler: str | None = None
    """The library that `traceopt run` samples its GPUs with, as the samples name it."""
    power_command: str | None = None
    """Shows the power limits of its GPUs."""
    graph_trace_command: str | None = None
    """Starts a program under its own profiler, which also records the kernels inside graphs."""
    blocking_variables: tuple[str, ...] = ()
    """Variables of the environment that make kernel launches wait for their kernel. The first is the usual one."""
    has_eager_loading: bool = False
    """CUDA_MODULE_LOADING=EAGER loads all GPU code at the start."""
    uncached_variables: tuple[str, ...] = ()
    """Variables that switch PyTorch's caching allocator off."""
    has_expandable_segments: bool = False
    """Segments of PyTorch's allocator can grow."""
    has_tf32_setting: bool = False
    """PyTorch's TF32 settings have an effect."""

    def word(self, term: Term) -> str:
        """What this vendor calls it."""
        return self.words.get(term, term.value)


NVIDIA = Vendor(
    "nvidia",
    "NVIDIA",
    is_read=True,
    runtime=Runtime("CUDA", "cuda_runtime_version", 1_000, 10),
    architecture_names=r"sm_(\d+)(\d)",
    capability_name="compute capability",
    numbers_devices_by_rank=True,
    sampler="nvml",
    power_command="nvidia-smi -q -d POWER",
    graph_trace_command="nsys profile --cuda-graph-trace=node",
    blocking_variables=("CUDA_LAUNCH_BLOCKING",),
    has_eager_loading=True,
    uncached_variables=("PYTORCH_NO_CUDA_MEMORY_CACHING",),
    has_expandable_segments=True,
    has_tf32_setting=True,
)
AMD = Vendor(
    "amd",
    "AMD",
    words=MappingProxyType(
        {
            Term.TENSOR_CORE: "Matrix Core",
            Term.TF32: "XF32",
            Term.CUDA_GRAPH: "HIP graph",
            Term.CUDNN: "MIOpen",
            Term.NCCL: "RCCL",
            Term.CUPTI: "roctracer",
            Term.COUNTER_TOOLS: "rocprof",
            Term.SERVING_ENGINES: "vLLM, TGI, SGLang or llama.cpp",
        }
    ),
    is_read=True,
    runtime=Runtime("ROCm", "hip_runtime_version", 10_000_000, 100_000),
    call_prefix="hip",
    device_words=("amd", "radeon"),
    # Tensile, MIOpen, AITER, ROCm's own libraries, and the descriptors of AMD's compiler ("attn_fwd.kd")
    kernel_names=r"Cijk_|\bigemm_\w+_gtcx|(?i:miopen)|\baiter|roc(?:clr|prim)|hipcub|gfx9|ISA9|\.kd$",
    architecture_names=r"gfx(\d+)(\d)[0-9a-f]",
    sampler="amdsmi",
    power_command="amd-smi metric --power --violation",
    graph_trace_command="rocprofv3 --sys-trace --",
    blocking_variables=("AMD_SERIALIZE_KERNEL", "HIP_LAUNCH_BLOCKING"),
    uncached_variables=("PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING"),
)
VENDORS = (NVIDIA, AMD)
CPU = Vendor("cpu", "CPU")
OTHER = Vendor("other", "unnamed")
"""A vendor whose devices traceopt does not read."""

_BY_KEY = {vendor.key: vendor for vendor in (*VENDORS, CPU)}


def vendor_called(key: str | None) -> Vendor:
    """The vendor with this key in documents; `OTHER` for an unknown one and None."""
    return _BY_KEY.get(key or "", OTHER)


def vendor_of(calls: Collection[str], device_names: str, kernels: Iterable[str] = ()) -> Vendor:
    """The vendor of a GPU, by the names of its runtime calls, else by those of the devices or of its kernels; NVIDIA if
    none tells.
    """
    for vendor in VENDORS:
        if vendor.call_prefix is not None and any(call.startswith(vendor.call_prefix) for call in calls):
            return vendor
    if device_names:
        return next((one for one in VENDORS if any(word in device_names.lower() for word in one.device_words)), NVIDIA)
    found = (one for kernel in kernels for one in VENDORS if one.kernel_names and re.search(one.kernel_names, kernel))
    return next(found, NVIDIA)


def device_name(name: str | None, vendor: str) -> str:
    """ "NVIDIA H100", "CPU", or "AMD GPU" where the name was not recorded. `vendor` is its key."""
    return name or (CPU.name if vendor == CPU.key else f"{vendor_called(vendor).name} GPU")
