"""The CPU of a run, and the peak rates that `traceopt run` measured on it after the run.

capture/metadata/cpu.py and capture/launch/cpu_peaks.py write them. A trace is untrusted input: values of an unexpected
type become None.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from traceopt.analyzer.tables.json_values import amount, flag, table, whole, word

NATIVE_BF16 = frozenset(("amx_bf16", "avx512_bf16", "bf16"))  # "bf16": Arm
MOST_THREADS = 65_536
_MOST_GFLOPS = 1e7
_MOST_GB_PER_S = 1e5
_MOST_PAGE_FAULT_US = 1e3


class Cpu(Struct, frozen=True):
    """The CPU; None if unknown. `capability` is the instruction set of torch's own kernels ("AVX512"). oneDNN is
    `mkldnn` in torch: whether the build has it, and whether it is switched on.
    """

    model: str | None = None
    flags: frozenset[str] | None = None
    threads_per_core: int | None = None
    capability: str | None = None
    mkldnn: bool | None = None
    mkldnn_enabled: bool | None = None

    @property
    def native_bf16(self) -> bool:
        """The CPU multiplies bfloat16 numbers itself; without such instructions bfloat16 is slower than FP32."""
        return bool(self.flags and self.flags & NATIVE_BF16)


class CpuPeaks(Struct, frozen=True):
    """Rates that the CPU reached after the run, with as many threads per operator as the run. None: not measured.

    `matmul` is in GFLOP/s by dtype ("fp32", "bf16", "fp64"), `convolution` in GFLOP/s of forward and backward by memory
    layout ("contiguous", "channels_last") in FP32, `convolution_fp64` the first of them in FP64. `copy_gb_per_s` counts
    reads and writes. `page_fault_us` is what a page of new memory costs. `all_threads` is the number of threads that
    fills the cores, if that is more, and `matmul_all_threads` the FP32 rate with them.
    """

    matmul: Mapping[str, float] = {}
    convolution: Mapping[str, float] = {}
    convolution_fp64: float | None = None
    copy_gb_per_s: float | None = None
    page_fault_us: float | None = None
    all_threads: int | None = None
    matmul_all_threads: float | None = None

    def speedup(self, dtype: str, to: str) -> float | None:
        """How many times as fast matmuls are in another dtype."""
        before, after = self.matmul.get(dtype), self.matmul.get(to)
        return after / before if before and after else None

    @property
    def fp32_convolution_speedup(self) -> float | None:
        """How many times as fast convolutions are in FP32 as in FP64."""
        before, after = self.convolution_fp64, self.convolution.get("contiguous")
        return after / before if before and after else None

    @property
    def channels_last_speedup(self) -> float | None:
        """How many times as fast convolutions are in channels_last."""
        before, after = self.convolution.get("contiguous"), self.convolution.get("channels_last")
        return after / before if before and after else None

    @property
    def all_threads_speedup(self) -> float | None:
        """How many times as fast FP32 matmuls are with all cores."""
        before, after = self.matmul.get("fp32"), self.matmul_all_threads
        return after / before if before and after else None


def read_cpu(value: object) -> Cpu:
    row = table(value)
    flags = row.get("flags")
    return Cpu(
        model=word(row.get("model")),
        flags=frozenset(map(str, flags[:100])) if isinstance(flags, list) else None,
        threads_per_core=whole(row.get("threads_per_core"), 16) or None,
        capability=word(row.get("capability")),
        mkldnn=flag(row.get("mkldnn")),
        mkldnn_enabled=flag(row.get("mkldnn_enabled")),
    )


def read_cpu_peaks(value: object) -> CpuPeaks | None:
    """None if nothing was measured."""
    row = table(value)
    peaks = CpuPeaks(
        matmul=_rates(row.get("matmul_gflops_per_s")),
        convolution=_rates(row.get("convolution_gflops_per_s")),
        convolution_fp64=amount(row.get("convolution_fp64_gflops_per_s"), _MOST_GFLOPS) or None,
        copy_gb_per_s=amount(row.get("copy_gb_per_s"), _MOST_GB_PER_S) or None,
        page_fault_us=amount(row.get("page_fault_us"), _MOST_PAGE_FAULT_US) or None,
        all_threads=whole(row.get("all_threads"), MOST_THREADS) or None,
        matmul_all_threads=amount(row.get("matmul_all_threads_gflops_per_s"), _MOST_GFLOPS) or None,
    )
    return peaks if peaks.matmul else None


def _rates(value: object) -> Mapping[str, float]:
    rates: dict[str, Any] = {name: amount(rate, _MOST_GFLOPS) for name, rate in list(table(value).items())[:20]}
    return {str(name)[:20]: rate for name, rate in rates.items() if rate}
