"""EF001: the step reaches only a small part of the GPU's peak throughput."""

from __future__ import annotations

import numpy as np

from traceopt.rules import (
    TENSOR_CORE,
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Priced,
    Rule,
    lacks,
    ms,
    peak_caveat,
    per_second,
    percent,
    subtract,
    the_step,
    threshold,
    us,
)


class LowMfu(Rule):
    """Measures the model FLOP utilization (MFU): the FLOP of matmuls, convolutions and attention (from their shapes)
    divided by the step time, as a share of the device's dense peak in the dtype they ran in. It also shows where the
    rest of the step goes. Hardware utilization (HFU) includes the FLOP that activation checkpointing recomputes.

    Why it costs: the peak is what the device was bought for. Large transformers reach an MFU of 40 to 60 %.
    Convolutional networks and small models reach less.

    Where the GPU's hardware counters were sampled (GPU metrics of Nsight Systems), the share of the time in which the
    Tensor Cores were active is measured, needs no shapes, and takes the place of the MFU.

    How to fix: each part in the evidence has its own rules. Start with the largest part.

        traceopt analyze trace.json.gz --select DL,LB,GM,TC,LB003,CM

    When it is wrong: MFU is a metric, not a fault. A model of memory-bound operators cannot reach much. The peak is the
    data sheet's, and devices reach 80 to 90 % of it. Sparse and quantized kernels count by their shapes.

    Sources: Chowdhery et al., "PaLM" (2022), appendix B; Korthikanti et al., "Reducing Activation Recomputation in
    Large Transformer Models" (2022), section 6.
    """

    code = "EF001"
    name = "low-mfu"
    title = "Find out what keeps the GPU below its peak"
    family = "efficiency"
    effort = Effort.DEPENDS
    confidence = "medium"
    requires = ("gpu", "whole", "launches", "shapes", "device")

    max_mfu: float = threshold(0.35, "smallest model FLOP utilization that is not reported")

    def missing(self, facts: Facts) -> str | None:
        """What is missing without measured counters."""
        needed = ("gpu", "whole") if _measured(facts) is not None else self.requires
        return next((lack for one in needed if (lack := lacks(facts, one))), None)

    def applies(self, facts: Facts) -> str | None:
        if not facts.trains:
            return "MFU is a training metric, and this trace has no backward pass or optimizer step."
        if _measured(facts) is not None:
            return None
        if not facts.flops.known:
            return (
                f"FLOP are known for only {percent(facts.flops.covered_share)} of the time in matmuls and convolutions."
            )
        if facts.flops.mfu is not None:
            return None
        dtype = facts.flops.dtype
        return facts.device.how_to_set(dtype) if dtype else "The dtype of the matmuls is unknown."

    def check(self, facts: Facts) -> Findings:
        if (active := _measured(facts)) is not None:
            if active < self.max_mfu:
                yield self._measured_finding(facts, active)
            return
        mfu, hfu, peak = facts.flops.mfu, facts.flops.hfu, facts.flops.peak_tflops
        if mfu is None or hfu is None or peak is None or mfu >= self.max_mfu:
            return
        parts = _parts(facts, mfu, hfu)
        recomputed = f", or {percent(hfu)} with recomputation" if hfu > mfu else ""
        caveat = peak_caveat(facts, facts.flops.dtype or "")
        largest = max(parts[1:], key=lambda part: part[1])
        yield self.finding(
            title=f"{self.title}{caveat}",
            why=(
                f"The {ms(facts.step_ns)} step reaches {percent(mfu)} of the {facts.flops.dtype} peak of "
                f"{per_second(peak, 'TFLOP')}{caveat}{recomputed}. The largest part of the rest is "
                f"{_inside(largest[0])} ({percent(largest[1])} of {the_step(facts)})."
            ),
            saving=None,
            evidence=[
                Evidence(name, us(share * facts.step_ns), detail=percent(share)) for name, share, _ in parts if share
            ],
            fix=Fix(f"Start with the largest part: {largest[2]}"),
        )

    def _measured_finding(self, facts: Facts, active: float) -> Priced:
        others = facts.measured_counters
        shares = {
            "SMs active": others.sm_active if others else None,
            f"{TENSOR_CORE}s active": active,
            "DRAM throughput": others.dram if others else None,
            "NVLink throughput": others.nvlink if others else None,
            "PCIe throughput": others.pcie if others else None,
        }
        return self.finding(
            why=(
                f"The {TENSOR_CORE}s are active for {percent(active)} of the {ms(facts.step_ns)} step, measured by "
                "hardware counters."
            ),
            saving=None,
            evidence=[
                Evidence(f"{name} (measured)", us(share * facts.step_ns), detail=percent(share))
                for name, share in shares.items()
                if share is not None
            ],
            fix=Fix("Start with the largest part of the step (DL, HS, LB, CM), then with shapes and dtypes (TC, GM)."),
        )

    def passed(self, facts: Facts) -> str:
        if (active := _measured(facts)) is not None:
            return (
                f"The {TENSOR_CORE}s are active for {percent(active)} of {the_step(facts)}, measured by hardware "
                "counters."
            )
        share, dtype = percent(facts.flops.mfu or 0.0), facts.flops.dtype or ""
        return f"The step reaches {share} of the device's peak in {dtype}{peak_caveat(facts, dtype)}."


def _measured(facts: Facts) -> float | None:
    """Share of the steps in which the Tensor Cores were active; None if counters did not measure it."""
    return facts.measured_counters.tensor_active if facts.measured_counters is not None else None


def _parts(facts: Facts, mfu: float, hfu: float) -> list[tuple[str, float, str]]:
    """Name, share of the window and place to look of each part; the shares sum to 1."""
    gpu, window = facts.gpu, facts.steps.window_ns
    eligible = gpu.area(facts.tensor_core_work.eligible)
    eligible_share = eligible.total / window
    ideal = min(hfu, eligible_share)
    comm, copies = gpu.exposed_communication.total / window, gpu.exposed_copies.total / window
    return [
        ("Model FLOP at the peak rate", min(mfu, eligible_share), "nothing to save."),
        ("Recomputation in the backward pass", max(0.0, ideal - mfu), "checkpoint fewer layers (MM007)."),
        ("Matmuls and convolutions below the peak rate", eligible_share - ideal, "their dtypes and shapes (TC, GM)."),
        ("Other kernels", subtract(gpu.compute, eligible).total / window, "fusion, and fewer small kernels (LB003)."),
        ("Exposed communication", comm, "overlap and bucket sizes (CM)."),
        ("Exposed copies", copies, "pinned memory and prefetching (DL003, DL004)."),
        (
            "GPU idle time",
            float(np.clip(1 - gpu.busy.total / window, 0, 1)),
            "what the host does in that time (DL, HS, LB).",
        ),
    ]


def _inside(name: str) -> str:
    """A part's name within a sentence."""
    return name if name.startswith("GPU") else name[:1].lower() + name[1:]
