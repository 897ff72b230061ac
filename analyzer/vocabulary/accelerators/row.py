"""How a row of the peak table is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from traceopt.analyzer.vocabulary.accelerator import Accelerator, Source

# Public texts in which several statements of the vendors were read.
TENSORRT_LLM = "NVIDIA/TensorRT-LLM, tensorrt_llm/auto_parallel/cluster_info.py"
EXEMPLAR = "NVIDIA/exemplar-performance, README.md, Peak Theoretical Throughput"
LIGHTNING = "Lightning-AI/pytorch-lightning, src/lightning/fabric/utilities/throughput.py"
INDUCTOR = "pytorch/pytorch, torch/_inductor/analysis/device_info.py"
ROCM_PAGES = "ROCm/legacy-rocm-build, docs/conceptual/gpu-arch"
INFRA_BOOK = "bojieli/ai-infra-book, calculations/configs/hardware.json, which names page and table"
GPUMAP = "lamonoai/gpumap, nvidia/GPU.md"


def peaks(**rates: float) -> Mapping[str, float]:
    """By dtype: TFLOP/s, TOP/s for int8."""
    return MappingProxyType(rates)


def row(
    name: str,
    pattern: str,
    arch: str,
    rates: Mapping[str, float],
    hbm: float | None,
    *sources: Source,
    memory: float | None = None,
    link: float | None = None,
    unverified: Iterable[str] = (),
) -> Accelerator:
    """`memory` in GiB as in `Accelerator.memory_gib`, `hbm` and `link` in GB/s, `unverified` figures by name."""
    return Accelerator(
        name=name,
        pattern=pattern,
        vendor="amd" if arch.startswith("gfx") else "nvidia",
        arch=arch,
        peak_tflops=rates,
        hbm_gb_per_s=hbm,
        sources=sources,
        unverified=frozenset(unverified),
        memory_gib=memory,
        link_gb_per_s=link,
    )
