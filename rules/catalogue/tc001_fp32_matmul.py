"""TC001: matmuls and convolutions run in FP32 without Tensor Cores on a GPU that has them."""

from __future__ import annotations

from traceopt.rules import (
    TENSOR_CORE,
    Facts,
    Findings,
    Fix,
    Risk,
    Rule,
    each_step,
    kernel_evidence,
    ms,
    percent,
    places,
    the_step,
    threshold,
)
from traceopt.rules.savings.precision import fp32_saving, fp32_work, mixed_share


class Fp32Matmul(Rule):
    """Measures the GPU time of FP32 matmuls, convolutions and attention that run without Tensor Cores on a device that
    has them. A run that does a good part of such work in 16 or 8 bits uses mixed precision already.

    Why it costs: FP32 runs on the ordinary units at a fraction of the rate: 15.7 instead of 125 TFLOP/s on a V100, 19.5
    instead of 312 on an A100.

    How to fix: run the forward pass under autocast.

        with torch.autocast("cuda", dtype=torch.bfloat16):   # Ampere and later
            loss = model(inputs, labels)
        loss.backward()

    On Volta and Turing use `torch.float16` with `torch.amp.GradScaler`. For convolutions add
    `model.to(memory_format=torch.channels_last)`. In inference, load the weights themselves in 16 bits:
    `model.to(torch.bfloat16)`.

    When it is wrong: the estimate is a model of kernels, not of your run. Memory-bound matmuls gain less, large ones
    more, and the step gets faster only as far as the host keeps up. Numerics change; check the loss.

    Sources: NVIDIA V100 and A100 datasheets; PyTorch documentation, "Automatic Mixed Precision".
    """

    code = "TC001"
    name = "fp32-matmul"
    title = "Use mixed precision for matmuls and convolutions"
    family = "precision"
    risk = Risk.NUMERICS
    confidence = "medium"
    requires = ("gpu",)

    min_share: float = threshold(0.05, "smallest FP32 matmul time, as a share of the step, to report")
    max_used_share: float = threshold(0.10, "16-bit Tensor Core share of matmul time that makes a run mixed")
    low_speedup: float = threshold(1.5, "speed-up of the kernels, low")
    speedup: float = threshold(2.5, "speed-up of the kernels, expected")
    high_speedup: float = threshold(8.0, "speed-up of the kernels, high (at most the ratio of the peaks)")

    def applies(self, facts: Facts) -> str | None:
        if facts.device.arch is None or not facts.device.arch.has_tensor_cores:
            return f"The device is not known to have {TENSOR_CORE}s."
        return None if facts.tensor_core_work.eligible.any() else "No matmuls or convolutions in this trace."

    def check(self, facts: Facts) -> Findings:
        work = fp32_work(facts)
        time = facts.tensor_core_work.time_ns(work) / facts.steps.count
        if time < self.min_share * facts.step_ns or mixed_share(facts) > self.max_used_share:
            return
        arch = facts.device.arch
        bf16 = arch is not None and arch.has_bf16
        dtype = "bf16" if bf16 else "fp16"
        evidence = kernel_evidence(facts, work)
        yield self.finding(
            why=(
                f"Matmuls, convolutions and attention take {ms(time)} of {each_step(facts)} in FP32, without the "
                f"{TENSOR_CORE}s of the {facts.device.name}."
            ),
            saving=fp32_saving(facts, work, dtype, self.low_speedup, self.speedup, self.high_speedup, pointwise=0.5),
            evidence=evidence,
            locations=places(evidence),
            fix=_fix(facts, bf16),
        )

    def passed(self, facts: Facts) -> str:
        mixed = mixed_share(facts)
        if mixed > self.max_used_share:
            return f"{TENSOR_CORE}s run {percent(mixed)} of the matmul time in mixed precision."
        share = facts.tensor_core_work.time_ns(fp32_work(facts)) / facts.steps.window_ns
        return f"FP32 matmuls without {TENSOR_CORE}s take {percent(share)} of {the_step(facts)}."


def _fix(facts: Facts, bf16: bool) -> Fix:
    """Only known inference needs no master weights in FP32."""
    if facts.trains:
        return _autocast(bf16)
    dtype = "bfloat16" if bf16 else "float16"
    return _narrow_weights(dtype) if facts.infers else _forward_pass(dtype)


def _forward_pass(dtype: str) -> Fix:
    scaler = " If it trains, use a GradScaler." if dtype == "float16" else ""
    return Fix(
        f"Run the forward pass under autocast in {dtype}.{scaler} For convolutions also use channels_last.",
        f'with torch.autocast("cuda", dtype=torch.{dtype}):\n    outputs = model(inputs)',
    )


def _autocast(bf16: bool) -> Fix:
    return Fix(
        f"Run the forward pass under autocast in {'bfloat16' if bf16 else 'float16 with a GradScaler'}. For "
        "convolutions also use channels_last.",
        'with torch.autocast("cuda", dtype=torch.bfloat16):\n    loss = model(inputs, labels)'
        if bf16
        else 'scaler = torch.amp.GradScaler("cuda")\nwith torch.autocast("cuda", dtype=torch.float16):\n'
        "    loss = model(inputs, labels)\n"
        "scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()",
    )


def _narrow_weights(dtype: str) -> Fix:
    """In inference the weights themselves can be narrow."""
    return Fix(
        f"Load the weights in {dtype}, or run the model under autocast. For convolutions also use channels_last.",
        f"model = model.to(torch.{dtype})",
    )
