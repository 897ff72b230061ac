"""CP003: convolutions of a CPU-only run work on NCHW tensors."""

from __future__ import annotations

from traceopt.rules import Effort, Facts, Findings, Fix, Rule, each_step, ms, percent, places, threshold
from traceopt.rules.savings.cpu_operators import faster_operators, operator_evidence, operators_ns


class CpuChannelsLast(Rule):
    """Measures the time of convolutions in a run without a GPU whose model is in NCHW (contiguous) layout, on a CPU
    that convolves faster in channels_last.

    Why it costs: oneDNN computes on blocks of channels. From NCHW it reorders inputs and gradients at each call, and
    pooling and batch norm read the channels of a pixel from places far apart.

    How to fix: convert the model and its input once.

        model = model.to(memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)

    When it is wrong: the speedup is measured on one convolution of 64 channels, after the run; other shapes differ. An
    operator without a channels_last version brings NCHW back.

    Sources: PyTorch tutorial, "Channels Last Memory Format"; oneDNN developer guide, "Memory format propagation".
    """

    code = "CP003"
    name = "cpu-channels-last"
    title = "Use channels_last for convolutions on the CPU"
    family = "CPU runs"
    effort = Effort.ONE_LINE
    confidence = "low"
    requires = ("cpu_only", "shapes", "settings")

    min_share: float = threshold(0.15, "smallest time of convolutions, as a share of the step, to report")
    min_speedup: float = threshold(1.2, "smallest measured speedup of channels_last to report")
    expected: float = threshold(0.5, "share of the measured speedup's gain, expected")

    def missing(self, facts: Facts) -> str | None:
        lack = super().missing(facts)
        if lack is not None or self.applies(facts) is not None:
            return lack
        peaks = facts.captured.cpu_peaks
        if peaks is None or peaks.channels_last_speedup is None:
            return (
                "What this CPU reaches in channels_last was not measured; record with traceopt run on an idle machine."
            )
        return None

    def applies(self, facts: Facts) -> str | None:
        if not any(one.is_convolution for one in facts.cpu_work.heavy):
            return "No convolutions in this trace."
        if not any(model.channels_last is False for model in facts.captured.models):
            return "No model in NCHW layout was recorded."
        return None

    def check(self, facts: Facts) -> Findings:
        convolutions = [one for one in facts.cpu_work.heavy if one.is_convolution and one.dtype in ("fp32", "bf16")]
        time_ns = operators_ns(facts, convolutions)
        peaks = facts.captured.cpu_peaks
        speedup = (peaks.channels_last_speedup if peaks is not None else None) or 1.0
        if time_ns < self.min_share * facts.step_ns or speedup < self.min_speedup:
            return
        evidence = operator_evidence(facts, convolutions)
        yield self.finding(
            why=(
                f"Convolutions on NCHW tensors take {ms(time_ns)} of {each_step(facts)}. On this machine a "
                f"convolution in channels_last is {speedup:.1f} times as fast."
            ),
            saving=faster_operators(
                facts,
                [(convolutions, speedup)],
                (0.0, self.expected, 1.0),
                f"Assumes none, {percent(self.expected)} or all of the gain from the measured speedup of {speedup:.1f} "
                "times.",
            ),
            evidence=evidence,
            locations=places(evidence),
            fix=Fix(
                "Convert the model and its input to channels_last once.",
                "model = model.to(memory_format=torch.channels_last)\n"
                "images = images.to(memory_format=torch.channels_last)",
            ),
        )

    def passed(self, facts: Facts) -> str:
        peaks = facts.captured.cpu_peaks
        speedup = peaks.channels_last_speedup if peaks is not None else None
        return f"On this machine a convolution in channels_last is {speedup or 1.0:.1f} times as fast as in NCHW."
