"""TC002: FP32 matmuls run without TF32 on a GPU that supports it."""

from __future__ import annotations

from traceopt.rules import (
    TENSOR_CORE,
    Call,
    Edit,
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Risk,
    Rule,
    SetAttribute,
    SetVariable,
    each_step,
    kernel_evidence,
    ms,
    percent,
    the_step,
    threshold,
)
from traceopt.rules.savings.work.precision import Wide, fp32_work, narrow_saving, needs_precision, peak_ratio


class Tf32Off(Rule):
    """Measures the GPU time of FP32 matmuls and convolutions that run without Tensor Cores on Ampere and later,
    although TF32 would move them to Tensor Cores without a change of data types.

    Why it costs: PyTorch leaves TF32 off for matmuls by default. On an A100, FP32 peaks at 19.5 TFLOP/s and TF32 at
    156.

    How to fix: two lines at the start of the script.

        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True

    When it is wrong: TF32 has the range of FP32 but 10 bits of mantissa. That rarely matters for training neural
    networks, but it does for some numerical code. On GeForce cards since Ampere, TF32 has the same peak rate as FP32,
    so the rule does not apply to them. The estimate is a model of kernels and ignores host limits.

    Sources: NVIDIA A100 whitepaper, "TF32"; PyTorch documentation, "CUDA semantics: TensorFloat-32".
    """

    code = "TC002"
    name = "tf32-off"
    title = "Enable TF32 for FP32 matmuls"
    family = "precision"
    effort = Effort.ONE_LINE
    risk = Risk.NUMERICS
    confidence = "medium"
    requires = ("gpu",)

    min_share: float = threshold(0.05, "smallest FP32 matmul time, as a share of the step, to report")
    min_ratio: float = threshold(1.2, "smallest ratio of the peaks of TF32 and FP32 that is worth the change")
    low_speedup: float = threshold(1.3, "speed-up of the kernels, low")
    speedup: float = threshold(2.0, "speed-up of the kernels, expected")
    high_speedup: float = threshold(6.0, "speed-up of the kernels, high (at most the ratio of the peaks)")

    def applies(self, facts: Facts) -> str | None:
        if (reason := needs_precision(facts)) is not None:
            return reason
        arch = facts.device.arch
        if not facts.device.vendor.has_tf32_setting:
            return "The setting is for NVIDIA GPUs."
        if arch is None or not arch.has_tf32:
            return "The device does not support TF32."
        if (ratio := peak_ratio(facts, "tf32")) is not None and ratio < self.min_ratio:
            return f"TF32 has {ratio:.2g} times the peak rate of FP32 on {facts.device.label}."
        if not facts.tensor_core_work.eligible.any():
            return "No matmuls or convolutions in this trace."
        environment = facts.captured.environment
        allowed = environment.matmul_tf32 and environment.conv_tf32 and not _overridden(facts)
        return "TF32 was recorded as allowed; work that still runs in FP32 cannot use it." if allowed else None

    def check(self, facts: Facts) -> Findings:
        work = fp32_work(facts)
        time = facts.tensor_core_work.time_ns(work) / facts.steps.count
        if time < self.min_share * facts.step_ns:
            return
        yield self.finding(
            why=(
                f"FP32 matmuls and convolutions take {ms(time)} of {each_step(facts)} without Tensor "
                f"Cores. The {facts.device.label} could run them in TF32."
            ),
            saving=narrow_saving(
                facts, [Wide(work, "fp32", (self.low_speedup, self.speedup, self.high_speedup))], "tf32"
            ),
            evidence=[*kernel_evidence(facts, work), *_recorded(facts)],
            fix=Fix(
                "Allow TF32 for matmuls and convolutions. It keeps FP32's range but has only 10 mantissa bits, so "
                f"check the {'loss' if facts.trains else 'results'} once after the change.",
                edits=_edits(facts),
            ),
            shares_cause_with=["TC001"],
        )

    def passed(self, facts: Facts) -> str:
        share = facts.tensor_core_work.time_ns(fp32_work(facts)) / facts.steps.window_ns
        return f"FP32 matmuls without {TENSOR_CORE}s take {percent(share)} of {the_step(facts)}."


def _overridden(facts: Facts) -> bool:
    """Whether the environment turns TF32 off; the variable overrides the script's settings."""
    return facts.captured.environment.variables.get("NVIDIA_TF32_OVERRIDE") == "0"


def _recorded(facts: Facts) -> list[Evidence]:
    environment = facts.captured.environment
    settings = {"TF32 for matmuls": environment.matmul_tf32, "TF32 for convolutions": environment.conv_tf32}
    found = [
        Evidence(f"{name}: {'on' if value else 'off'}", detail="recorded setting")
        for name, value in settings.items()
        if value is not None
    ]
    return found + ([Evidence("NVIDIA_TF32_OVERRIDE=0", detail="recorded environment")] if _overridden(facts) else [])


def _edits(facts: Facts) -> list[Edit]:
    """The settings to change, without those that are already right."""
    environment = facts.captured.environment
    edits: list[Edit] = [SetVariable("NVIDIA_TF32_OVERRIDE", None)] if _overridden(facts) else []
    if not environment.matmul_tf32:
        edits.append(Call("torch.set_float32_matmul_precision", '"high"'))
    if not environment.conv_tf32:
        edits.append(SetAttribute("torch.backends.cudnn.allow_tf32", "True"))
    return edits
