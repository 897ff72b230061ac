"""EF001: the step reaches a small part of the GPU's peak."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from traceopt.analyzer.arrays.intervals import subtract
from traceopt.analyzer.facts import Facts
from traceopt.result.finding import Confidence, Evidence, Fix
from traceopt.result.quantities import ms, percent
from traceopt.result.rounding import us
from traceopt.rules.rule import Findings, Rule, threshold
from traceopt.rules.savings.roofline import peak_caveat


class LowMfu(Rule):
    """Measures the model FLOP utilisation (MFU): the FLOP of matrix products, convolutions and attention, from their
    shapes, over the step's time, as a share of the device's dense peak in the type that they were computed in; and says
    where the rest of the step went. Hardware utilisation (HFU) also counts what checkpointing computes again.

    Why it costs: the peak is what the device was bought for. Large transformers reach an MFU of 40 to 60 %; convolution
    networks and small models reach less.

    How to fix: the parts in the evidence have rules of their own; start with the largest one.

        traceopt analyze trace.json.gz --select DL,LB,GM,TC,LB003,CM

    When it is wrong: MFU is a measure, no fault: a model of memory-bound operators cannot reach much. The peak is that
    of the data sheet, of which a device reaches 80 to 90 %. Sparse and quantised kernels count by their shapes.

    Sources: Chowdhery et al., "PaLM" (2022), appendix B; Korthikanti et al., "Reducing Activation Recomputation in
    Large Transformer Models" (2022), section 6.
    """

    code: ClassVar[str] = "EF001"
    name: ClassVar[str] = "low-mfu"
    title: ClassVar[str] = "See where the rest of the GPU's peak goes"
    family: ClassVar[str] = "efficiency"
    effort: ClassVar[str] = "Depends on the part"
    confidence: ClassVar[Confidence] = "medium"
    requires: ClassVar[tuple[str, ...]] = ("gpu", "whole", "launches", "shapes", "device")

    max_mfu: float = threshold(0.35, "model FLOP utilisation from which on nothing is said")

    def applies(self, facts: Facts) -> str | None:
        if not facts.trains:
            return "Utilisation is a measure of training; no backward pass or optimizer was seen."
        if not facts.flops.known:
            return f"The FLOP are known for {percent(facts.flops.covered_share)} of the product time only."
        if facts.flops.mfu is not None:
            return None
        dtype = facts.flops.dtype
        return facts.device.how_to_set(dtype) if dtype else "The type of the products is not known."

    def check(self, facts: Facts) -> Findings:
        mfu, hfu, peak = facts.flops.mfu, facts.flops.hfu, facts.flops.peak_tflops
        if mfu is None or hfu is None or peak is None or mfu >= self.max_mfu:
            return
        parts = _parts(facts, mfu, hfu)
        again = f", {percent(hfu)} with what is computed again" if hfu > mfu else ""
        caveat = peak_caveat(facts, facts.flops.dtype or "")
        largest = max(parts[1:], key=lambda part: part[1])
        yield self.finding(
            title=f"{self.title}{caveat}",
            why=(
                f"The step of {ms(facts.step_ns)} reaches {percent(mfu)} of the {facts.flops.dtype} peak of "
                f"{peak:,.0f} TFLOP/s{caveat}{again}. The largest part of the rest: {_inside(largest[0])}, "
                f"{percent(largest[1])} of the step."
            ),
            saving=None,
            evidence=[
                Evidence(name, us(share * facts.step_ns), detail=percent(share)) for name, share, _ in parts if share
            ],
            fix=Fix(f"Begin with the largest part: {largest[2]}"),
        )

    def passed(self, facts: Facts) -> str:
        share, dtype = percent(facts.flops.mfu or 0.0), facts.flops.dtype or ""
        return f"The step reaches {share} of the device's peak in {dtype}{peak_caveat(facts, dtype)}."


def _parts(facts: Facts, mfu: float, hfu: float) -> list[tuple[str, float, str]]:
    """Name and share of the window of each part, and where to look; they sum to the window."""
    gpu, window = facts.gpu, facts.steps.window_ns
    products = gpu.area(facts.tensor_core_work.eligible)
    product_share = products.total / window
    ideal = min(hfu, product_share)
    comm, copies = gpu.exposed_communication.total / window, gpu.exposed_copies.total / window
    return [
        ("The model's FLOP at the peak rate", min(mfu, product_share), "nothing to win."),
        ("Computed again in the backward pass", max(0.0, ideal - mfu), "checkpoint fewer layers (MM007)."),
        ("Products below the peak rate", product_share - ideal, "types and shapes of products (TC, GM)."),
        ("Other kernels", subtract(gpu.compute, products).total / window, "fusion, and fewer small kernels (LB003)."),
        ("Exposed communication", comm, "overlap and buckets (CM)."),
        ("Exposed copies", copies, "pinned memory and prefetching (DL003, DL004)."),
        ("GPU idle", float(np.clip(1 - gpu.busy.total / window, 0, 1)), "what the host does meanwhile (DL, HS, LB)."),
    ]


def _inside(name: str) -> str:
    """A part's name inside a sentence."""
    return name if name.startswith("GPU") else name[:1].lower() + name[1:]
