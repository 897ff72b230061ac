"""TC005: large 16-bit matmuls run near the peak on a device with faster FP8 Tensor Cores."""

from __future__ import annotations

from traceopt.rules import (
    OP,
    TENSOR_CORE,
    Evidence,
    Facts,
    Findings,
    Fix,
    GemmShape,
    Risk,
    Rule,
    each_step,
    location_of,
    ms,
    peak_caveat,
    percent,
    places,
    the_step,
    threshold,
)


class Fp8Candidate(Rule):
    """Measures the time of large, aligned 16-bit matmuls that reach much of the device's peak, on a device with FP8
    Tensor Cores.

    Why it costs: such matmuls are compute-bound, and nothing in 16 bits makes them faster. FP8 doubles the peak and
    halves the bytes.

    How to fix: convert the linear layers.

        from torchao.float8 import convert_to_float8_training
        convert_to_float8_training(model)          # then torch.compile(model)

        import transformer_engine.pytorch as te    # te.Linear, te.autocast(enabled=True)

        from torchao.quantization import Float8DynamicActivationFloat8WeightConfig, quantize_
        quantize_(model, Float8DynamicActivationFloat8WeightConfig())      # inference

    When it is wrong: scaling takes time of its own, so matmuls must be large, and you must check the loss. The finding
    therefore has no saving.

    Sources: Micikevicius et al., "FP8 Formats for Deep Learning" (2022); torchao documentation, float8 training.
    """

    code = "TC005"
    name = "fp8-candidate"
    title = "Consider FP8 for large matmuls"
    family = "precision"
    risk = Risk.NUMERICS
    confidence = "low"
    requires = ("gpu", "launches", "shapes", "device")

    min_share: float = threshold(0.30, "smallest time of such matmuls, as a share of the step, to report")
    min_size: int = threshold(2048, "smallest M, N and K of a large matmul")
    min_peak_share: float = threshold(0.45, "smallest share of the 16-bit peak that counts as near it")

    def applies(self, facts: Facts) -> str | None:
        arch, accelerator = facts.device.arch, facts.device.accelerator
        if arch is None or accelerator is None or not arch.has_fp8 or not accelerator.peak("fp8"):
            return f"The device has no FP8 {TENSOR_CORE}s."
        return None if facts.gemms.shapes else "No matmul of known shape in this trace."

    def check(self, facts: Facts) -> Findings:
        chosen = self._chosen(facts)
        time = sum(shape.duration_ns for shape in chosen) / facts.steps.count
        if time < self.min_share * facts.step_ns:
            return
        evidence = [_evidence(facts, shape) for shape in chosen[:5]]
        measure = "loss" if facts.trains else "results"
        yield self.finding(
            why=(
                f"Large 16-bit matmuls take {ms(time)} of {each_step(facts)} near the peak of the "
                f"{facts.device.name}{_caveat(facts, chosen)}. Its FP8 peak is twice as high."
            ),
            saving=None,
            evidence=evidence,
            locations=places(evidence),
            fix=Fix(
                f"Try FP8 for the linear layers (torchao, Transformer Engine), and compare the {measure}.",
                "torchao.float8.convert_to_float8_training(model)"
                if facts.trains
                else "torchao.quantization.quantize_(model, Float8DynamicActivationFloat8WeightConfig())",
            ),
        )

    def _chosen(self, facts: Facts) -> list[GemmShape]:
        gemms = facts.gemms
        return [
            shape
            for shape in gemms.shapes
            if shape.dtype in ("bf16", "fp16")
            and shape.batch == 1
            and min(shape.m, shape.n, shape.k) >= self.min_size
            and gemms.aligned(shape)
            and (gemms.peak_share(shape) or 0.0) >= self.min_peak_share
        ]

    def passed(self, facts: Facts) -> str:
        chosen = self._chosen(facts)
        time = sum(shape.duration_ns for shape in chosen) / facts.steps.window_ns
        return f"Large 16-bit matmuls near the peak{_caveat(facts, chosen)} take {percent(time)} of {the_step(facts)}."


def _caveat(facts: Facts, shapes: list[GemmShape]) -> str:
    return peak_caveat(facts, *{shape.dtype for shape in shapes})


def _evidence(facts: Facts, shape: GemmShape) -> Evidence:
    share = facts.gemms.peak_share(shape) or 0.0
    return Evidence(
        what=f"{shape.op} {shape.m}x{shape.n}x{shape.k} {shape.dtype}",
        us_per_step=round(shape.duration_ns / facts.steps.count / 1e3, 3),
        calls_per_step=round(shape.calls / facts.steps.count, 3),
        detail=f"{percent(share)} of the peak{peak_caveat(facts, shape.dtype)}",
        location=location_of(facts, int(facts.slices.of(OP, len(facts.trace.ops))[shape.rows[0]])),
    )
