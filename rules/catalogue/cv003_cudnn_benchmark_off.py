"""CV003: cudnn.benchmark is off, although the shapes of convolutions never change."""

from __future__ import annotations

from traceopt.rules import (
    CUDNN,
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Risk,
    Rule,
    SetAttribute,
    each_step,
    kernel_evidence,
    ms,
    percent,
    the_step,
    threshold,
)


class CudnnBenchmarkOff(Rule):
    """Measures the GPU time of convolutions in a run in which `torch.backends.cudnn.benchmark` was off and every step
    has convolutions of the same shapes.

    Why it costs: for a new shape, cuDNN (MIOpen on AMD) chooses an algorithm by heuristics. With benchmark on, it times
    the candidates once and keeps the fastest.

    How to fix: add one line before the first convolution.

        torch.backends.cudnn.benchmark = True

    The gain is unknown until you try it. It is zero if the heuristics were right, and larger for unusual shapes,
    strides and groups. This is why the finding has no saving.

    When it is wrong: if shapes change often, each new one is timed again, which takes seconds. The fastest algorithm
    may differ from run to run, and so may the last bits of the results.

    Sources: PyTorch performance tuning guide, "Enable cuDNN auto-tuner"; PyTorch documentation, "Reproducibility".
    """

    code = "CV003"
    name = "cudnn-benchmark-off"
    title = "Turn on cudnn.benchmark"
    family = "convolution"
    effort = Effort.ONE_LINE
    risk = Risk.ROUNDING
    risk_note = "Last bits may differ between runs"
    requires = ("gpu", "settings", "shapes")

    min_share: float = threshold(0.10, "smallest time of convolutions, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        environment = facts.captured.environment
        if not facts.gpu.kind.among("conv").any():
            return "No convolutions in this trace."
        if environment.deterministic:
            return f"Deterministic algorithms are on, so {CUDNN} cannot choose among algorithms."
        return "The cudnn.benchmark setting was not recorded." if environment.cudnn_benchmark is None else None

    def check(self, facts: Facts) -> Findings:
        work = facts.gpu.kind.among("conv") & facts.gpu.is_inside
        time_ns = facts.gpu.spent_ns(work) / facts.steps.count
        shapes = facts.convolutions.repeated_shapes
        if facts.captured.environment.cudnn_benchmark or time_ns < self.min_share * facts.step_ns or not shapes:
            return
        yield self.finding(
            why=(
                f"Convolutions take {ms(time_ns)} of {each_step(facts)}, and cudnn.benchmark is off. Every "
                f"step has the same {'convolution shape' if shapes == 1 else f'{shapes} convolution shapes'}."
            ),
            evidence=[
                *kernel_evidence(facts, work, 3),
                Evidence("torch.backends.cudnn.benchmark = False", detail="recorded setting"),
            ],
            fix=Fix(
                "Turn it on before the first convolution and compare the step time. The first steps take longer.",
                edits=[SetAttribute("torch.backends.cudnn.benchmark", "True")],
            ),
        )

    def passed(self, facts: Facts) -> str:
        if facts.captured.environment.cudnn_benchmark:
            return "torch.backends.cudnn.benchmark is on."
        share = facts.gpu.spent_ns(facts.gpu.kind.among("conv")) / facts.steps.window_ns
        return f"Convolutions take {percent(share)} of {the_step(facts)}, or their shapes change from step to step."
