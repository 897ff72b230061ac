"""Settings of the process that affect speed, and the state of GPU memory.

Nothing here may initialize CUDA, warn, or change a setting. Values that cannot be read are None.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

from ..machine import available_memory_bytes, cpu_quota
from ..or_none import or_none
from .cpu import describe_cpu

VARIABLES = (
    "CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL",
    "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_MODULE_LOADING", "CUDA_VISIBLE_DEVICES",
    "NVIDIA_TF32_OVERRIDE", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_DISTRIBUTED_DEBUG", "TORCH_SHOW_CPP_STACKTRACES", "TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE",
    "NCCL_DEBUG", "NCCL_P2P_DISABLE", "NCCL_IB_DISABLE", "NCCL_ALGO", "NCCL_PROTO", "TORCH_NCCL_BLOCKING_WAIT",
    "PYTHONMALLOC", "PYTHONDEVMODE", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_",
)  # fmt: skip

LOCAL_RANKS = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE")
NODES = Path("/sys/devices/system/node")

MEMORY_FIELDS = {
    "allocated_bytes": "allocated_bytes.all.current",
    "peak_allocated_bytes": "allocated_bytes.all.peak",
    "reserved_bytes": "reserved_bytes.all.current",
    "peak_reserved_bytes": "reserved_bytes.all.peak",
    "alloc_retries": "num_alloc_retries",
    "out_of_memory": "num_ooms",
}


def rank(torch: Any) -> int | None:
    """Rank of this process in its distributed run, None if there is none."""
    if _is_distributed(torch):
        return _integer(torch.distributed.get_rank())
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return None


def world_size(torch: Any) -> int | None:
    """World size of the distributed run of this process, None if there is none."""
    return _integer(torch.distributed.get_world_size()) if _is_distributed(torch) else None


def describe_environment(torch: Any) -> dict[str, Any]:
    backends = torch.backends
    cuda, cudnn = backends.cuda, backends.cudnn
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
        "gpus": _gpus(torch),
        "cpu": describe_cpu(torch),
        "cpu_count": os.cpu_count(),
        "cpu_affinity": or_none(lambda: len(os.sched_getaffinity(0))),
        "cpu_affinity_of_parent": or_none(lambda: len(os.sched_getaffinity(os.getppid()))),
        "cpu_quota": cpu_quota(),
        "numa_nodes": _numa_nodes(),
        "available_memory_bytes": available_memory_bytes(),
        "local_world_size": _local_world_size(),
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "world_size": world_size(torch),
        "default_dtype": str(torch.get_default_dtype()),
        "matmul_precision": or_none(torch.get_float32_matmul_precision),
        "matmul_tf32": _tf32(cuda.matmul),
        "conv_tf32": _tf32(getattr(cudnn, "conv", cudnn)),
        "cudnn_benchmark": or_none(lambda: bool(cudnn.benchmark)),
        "deterministic": or_none(torch.are_deterministic_algorithms_enabled),
        "sdp_flash": or_none(cuda.flash_sdp_enabled),
        "sdp_memory_efficient": or_none(cuda.mem_efficient_sdp_enabled),
        "sdp_math": or_none(cuda.math_sdp_enabled),
        "anomaly_mode": or_none(torch.is_anomaly_enabled),
        "python_debug": bool(sys.flags.dev_mode),
        "libc": platform.libc_ver()[0] or None,
        "preloaded_allocator": _preloaded_allocator(),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def describe_memory(torch: Any) -> dict[str, int] | None:
    """Counters of the current GPU's caching allocator, None if the process uses no GPU."""
    if not or_none(torch.cuda.is_initialized):
        return None
    counters = or_none(torch.cuda.memory_stats) or {}
    return {name: counters[key] for name, key in MEMORY_FIELDS.items() if key in counters}


def _gpus(torch: Any) -> list[dict[str, Any]]:
    """The GPUs of a process that already uses CUDA: reading their properties would initialize it."""
    if not or_none(torch.cuda.is_initialized):
        return []
    properties = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return [{"name": p.name, "memory_bytes": p.total_memory, "capability": [p.major, p.minor]} for p in properties]


def _numa_nodes() -> dict[str, int] | None:
    """Number of NUMA nodes, and number of nodes with cores that this process may use."""
    cores = or_none(lambda: os.sched_getaffinity(0)) or set()
    nodes = [{int(path.name[3:]) for path in node.glob("cpu[0-9]*")} for node in NODES.glob("node[0-9]*")]
    used = sum(not cores.isdisjoint(node) for node in nodes)
    return {"all": len(nodes), "used": used} if used else None


def _preloaded_allocator() -> str | None:
    """File name of the library that replaces the C library's malloc, such as libtcmalloc.so.4."""
    libraries = os.environ.get("LD_PRELOAD", "").replace(":", " ").split()
    return next((name for library in libraries if "malloc" in (name := os.path.basename(library))), None)


def _local_world_size() -> int | None:
    """Number of the run's processes on this machine, according to its launcher."""
    return next((int(os.environ[name]) for name in LOCAL_RANKS if os.environ.get(name, "").isdigit()), None)


def _tf32(backend: Any) -> bool | None:
    """Whether TF32 is allowed. torch 2.9 has fp32_precision, and complains if the older switch is used as well."""
    precision = or_none(lambda: backend.fp32_precision)
    if precision is not None:
        return bool(precision == "tf32")
    allowed = or_none(lambda: backend.allow_tf32)
    return None if allowed is None else bool(allowed)


def _is_distributed(torch: Any) -> bool:
    return bool(or_none(lambda: torch.distributed.is_available() and torch.distributed.is_initialized()))


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) else None
