"""TC003: 16-bit and 8-bit matmuls run on kernels that do not use Tensor Cores."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.vocabulary.causes.work_kinds import NAIVE_CONVOLUTIONS
from traceopt.rules import (
    TENSOR_CORE,
    Effort,
    Facts,
    Findings,
    Fix,
    Mask,
    Rule,
    each_step,
    kernel_evidence,
    ms,
    percent,
    threshold,
)

NARROW = ("fp16", "bf16", "fp8", "int8")


class LowTensorCoreUse(Rule):
    """Measures the GPU time of 16-bit and 8-bit matmuls, convolutions and attention in kernels that are known not to
    use Tensor Cores. If a kernel's name does not tell, it counts as unknown, never as unused. Memory-bound matmuls do
    not count: matrix-vector products and those with few rows, as in decoding.

    Where hardware counters were sampled (GPU metrics of Nsight Systems), the measured activity of the Tensor Cores in
    those kernels decides, not the names of the kernels. The finding has no saving, because it is not known how much of
    that work the memory limits.

    Why it costs: the data is already narrow, but the fast units sit unused. The work runs at the rate of the ordinary
    units.

    How to fix: the cause depends on the kernel. Depthwise and grouped convolutions have few channels to multiply: widen
    the groups or use channels_last. Dimensions that are not multiples of 8 need padding (GM001). MIOpen falls back to
    its naive_conv kernels if it finds no faster one: try the other memory format, another type, a newer ROCm, or
    MIOPEN_FIND_MODE=1.

        model = model.to(memory_format=torch.channels_last)
        vocab = (vocab + 63) // 64 * 64

    When it is wrong: memory-bound kernels would not be faster on Tensor Cores. Matmuls of known shape are compared with
    the device's peaks, others are known by the names of their kernels. Attention and convolutions are not compared.
    Batching and narrower weights make decoding faster (GM005).

    Sources: NVIDIA, "Matrix Multiplication Background User's Guide"; AMD, MIOpen documentation, "Find modes".
    """

    code = "TC003"
    name = "low-tensor-core-use"
    title = f"Use shapes and layouts that let 16-bit matmuls run on {TENSOR_CORE}s"
    family = "precision"
    effort = Effort.DEPENDS
    confidence = "low"
    requires = ("gpu",)

    min_share: float = threshold(0.05, "smallest time of such kernels, as a share of the step, to report")
    active: float = threshold(0.05, "measured activity of the Tensor Cores from which kernels count as using them")

    def applies(self, facts: Facts) -> str | None:
        if facts.device.arch is None or not facts.device.arch.has_tensor_cores:
            return f"The device is not known to have {TENSOR_CORE}s."
        if facts.serving is not None and facts.serving.phases[0].phase == "decode":
            return "Most steps decode: reading weights and cache limits them, not arithmetic."
        return (
            None if facts.tensor_core_work.dtype.among(*NARROW).any() else "No 16-bit or 8-bit matmuls in this trace."
        )

    def check(self, facts: Facts) -> Findings:
        work = _unused(facts)
        time = facts.tensor_core_work.time_ns(work) / facts.steps.count
        if time < self.min_share * facts.step_ns:
            return
        measured = _measured(facts, work)
        if measured is not None and measured >= self.active:
            return
        counted = (
            f" Hardware counters measured the {TENSOR_CORE}s active for {percent(measured)} of that time."
            if measured is not None
            else ""
        )
        yield self.finding(
            why=(f"16-bit or 8-bit matmuls take {ms(time)} of {each_step(facts)} without {TENSOR_CORE}s.{counted}"),
            confidence=None if measured is None else "medium",
            evidence=kernel_evidence(facts, work),
            fix=Fix(NAIVE_CONVOLUTIONS.instead)
            if facts.main_work is not None and facts.main_work.kind is NAIVE_CONVOLUTIONS
            else Fix(
                "Depending on the kernel, pad dimensions to multiples of 8, or use channels_last for convolutions.",
                "model = model.to(memory_format=torch.channels_last)",
            ),
        )

    def passed(self, facts: Facts) -> str:
        measured = _measured(facts, _unused(facts))
        if measured is not None and measured >= self.active:
            return (
                f"Hardware counters measured the {TENSOR_CORE}s active for {percent(measured)} of the time of 16-bit "
                "and 8-bit matmuls whose kernels have names of others."
            )
        narrow = facts.tensor_core_work.dtype.among(*NARROW)
        total = facts.tensor_core_work.time_ns(narrow)
        share = percent(facts.tensor_core_work.time_ns(_unused(facts)) / total if total else 0)
        return f"{share} of the 16-bit and 8-bit matmul time runs without {TENSOR_CORE}s, memory-bound matmuls aside."


def _measured(facts: Facts, work: Mask) -> float | None:
    """Share of this work's time in which the Tensor Cores were active; None if counters did not measure it."""
    return facts.measured_counters.tensor_active_during(work) if facts.measured_counters is not None else None


def _unused(facts: Facts) -> Mask:
    """16-bit and 8-bit work without Tensor Cores that is not limited by memory."""
    work = facts.tensor_core_work
    return np.asarray(work.unused & work.dtype.among(*NARROW) & ~facts.gemms.memory_bound)
