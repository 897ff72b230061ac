"""CV001: convolutions work on NCHW tensors, which a GPU transposes and a CPU reorders."""

from __future__ import annotations

from traceopt.rules import (
    Effort,
    Facts,
    Findings,
    Fix,
    Former,
    Risk,
    Rule,
    SetArguments,
    each_step,
    kernel_evidence,
    ms,
    per_step,
    percent,
    the_step,
    threshold,
)
from traceopt.rules.savings.work.channels_last import ChannelsLast
from traceopt.rules.savings.work.cpu_experiments import in_channels_last, measured_operators, measured_price
from traceopt.rules.savings.work.cpu_operators import faster_operators, operator_evidence, operators_ns

KEEP_LAYOUT = Fix(
    "channels_last alone may make the step longer. First pad in a way that keeps the layout: join slices with "
    "torch.cat, or pad with zeros. Then convert the model and its input, and measure.",
    "x = torch.cat([x[..., -1:], x, x[..., :1]], dim=-1)  # circular; keeps channels_last",
)
MODEL, IMAGES = (SetArguments(f"{one}.to", {"memory_format": "torch.channels_last"}) for one in ("model", "images"))
CONVERT = Fix("Convert the model and its input to channels_last once.", edits=[MODEL, IMAGES])
CONVERT_INPUT = Fix(
    "The recorded model weights are already in channels_last. Convert the input too, and look for operators that bring "
    "NCHW back. The evidence names the operators that launch the transposes.",
    edits=[IMAGES],
)


class LayoutConversion(Rule):
    """Measures kernels that transpose activations and weights between NCHW and NHWC in a model with convolutions, and
    batch norms on NCHW tensors that take longer than the memory bandwidth explains (with recorded shapes). Without
    transposes: depthwise convolutions that PyTorch's own kernels compute, as it does for NCHW tensors. In a run
    without a GPU: the time of convolutions of a model in NCHW (contiguous) layout, on a CPU that convolves faster in
    channels_last.

    Why it costs: Tensor Cores and matrix cores convolve in NHWC. An NCHW model is transposed before and after each
    convolution, and each transpose reads and writes the whole tensor. Batch norms are slow, too: the kernels for NCHW
    work on each channel apart, and few channels do not fill the device. Depthwise convolutions have fast kernels for
    channels_last in cuDNN. On a CPU, oneDNN computes on blocks of channels: from NCHW it reorders inputs and gradients
    at each call.

    How to fix: keep the model and its input in channels_last.

        model = model.to(memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)

    When it is wrong: `view` of a channels_last tensor may raise an error: use `reshape` or `flatten`. Operators without
    a channels_last version bring the transposes back, and copies of strided tensors are slower than transposes.
    Circular, reflecting and replicating paddings are such operators: the estimate counts only convolutions without
    them, and there is none if they stand before half of the convolutions. A single transpose of the model's input is
    normal. Whether cuDNN's depthwise kernels are faster depends on the shape: there is no saving for them. The speedup
    of a CPU is measured on one convolution of 64 channels, after the run; other shapes differ.

    Sources: PyTorch tutorial, "Channels Last Memory Format"; NVIDIA, "Convolutional Layers User's Guide"; oneDNN
    developer guide, "Memory format propagation".
    """

    code = "CV001"
    name = "layout-conversion"
    title = "Use channels_last for convolutions"
    family = "convolution"
    effort = Effort.ONE_LINE
    risk = Risk.ROUNDING
    confidence = "medium"
    requires = ("gpu",)
    requires_on_cpu = ("shapes", "settings")
    former = (
        Former("CP003", "cpu-channels-last", {"min_share": "min_convolution_share", "expected": "expected_on_cpu"}),
    )

    min_share: float = threshold(0.01, "smallest time of layout transposes, as a share of the step, to report")
    min_depthwise_share: float = threshold(0.10, "smallest time of depthwise convolutions in NCHW, as a share")
    min_convolution_share: float = threshold(0.15, "smallest time of convolutions in a CPU-only run, as a share")
    min_speedup: float = threshold(1.2, "smallest measured speedup of channels_last on the CPU to report")
    expected_on_cpu: float = threshold(0.5, "share of the measured speedup's gain on the CPU, expected")
    most_undone: float = threshold(
        0.5, "paddings that undo channels_last for each convolution, from which none is saved"
    )

    def applies(self, facts: Facts) -> str | None:
        if facts.has_gpu:
            return None if facts.gpu.kind.among("conv").any() else "No convolutions in this trace."
        if not any(operator.is_convolution for operator in facts.cpu_work.heavy):
            return "No convolutions in this trace."
        if not any(model.channels_last is False for model in facts.captured.models):
            return "No model in NCHW layout was recorded."
        return None

    def missing(self, facts: Facts) -> str | None:
        lack = super().missing(facts)
        if lack is None and not facts.has_gpu and self.applies(facts) is None and _cpu_speedup(facts) is None:
            return (
                "What this CPU reaches in channels_last was not measured; record with traceopt run on an idle machine."
            )
        return lack

    def check(self, facts: Facts) -> Findings:
        return self._on_gpu(facts) if facts.has_gpu else self._on_cpu(facts)

    def _on_gpu(self, facts: Facts) -> Findings:
        layout, count = ChannelsLast(facts), facts.steps.count
        if layout.transposes_ns < self.min_share * facts.step_ns:
            if layout.depthwise_ns >= self.min_depthwise_share * facts.step_ns:
                yield from self._depthwise(facts, layout)
            return
        share = percent(facts.gpu.spent_ns(layout.transposes) / max(1, facts.gpu.busy.total))
        yield self.finding(
            why=(
                f"{layout.transposes.sum() / count:,.0f} layout transposes {per_step(facts)} take "
                f"{ms(layout.transposes_ns)} of {each_step(facts)}, or {share} of the GPU's busy time."
                + _batch_norms(layout)
                + _undone(layout)
            ),
            saving=layout.price() if layout.undone_share < self.most_undone else None,
            evidence=layout.evidence(),
            fix=_fix(facts) if layout.undone_share < self.most_undone else KEEP_LAYOUT,
        )

    def _depthwise(self, facts: Facts, layout: ChannelsLast) -> Findings:
        yield self.finding(
            title="Use channels_last for depthwise convolutions",
            why=(
                f"Depthwise convolutions take {ms(layout.depthwise_ns)} of {each_step(facts)} in PyTorch's own "
                "kernels. It calls them for NCHW tensors, and cuDNN's for channels_last. Those may be faster: measure."
            ),
            evidence=kernel_evidence(facts, layout.depthwise),
            fix=_fix(facts),
        )

    def _on_cpu(self, facts: Facts) -> Findings:
        convolutions = [
            operator
            for operator in facts.cpu_work.heavy
            if operator.is_convolution and operator.dtype in ("fp32", "bf16")
        ]
        sizes = measured_operators(facts, convolutions, in_channels_last)
        time_ns, speedup = operators_ns(facts, convolutions), sizes.speedup or _cpu_speedup(facts) or 1.0
        if time_ns < self.min_convolution_share * facts.step_ns or speedup < self.min_speedup:
            return
        yield self.finding(
            why=(
                f"Convolutions on NCHW tensors take {ms(time_ns)} of {each_step(facts)}. On this machine a "
                f"convolution in channels_last is {speedup:.1f} times as fast."
            ),
            saving=measured_price(
                facts,
                facts.cpu_work.area(convolutions),
                sizes,
                otherwise=faster_operators(
                    facts,
                    [(convolutions, speedup)],
                    (0.0, self.expected_on_cpu, 1.0),
                    f"Assumes none, {percent(self.expected_on_cpu)} or all of the gain from the measured speedup of "
                    f"{speedup:.1f} times.",
                ),
            ),
            confidence="low" if sizes.speedup is None else "medium",
            evidence=operator_evidence(facts, convolutions),
            fix=CONVERT,
        )

    def passed(self, facts: Facts) -> str:
        if not facts.has_gpu:
            speedup = _cpu_speedup(facts) or 1.0
            return f"On this machine a convolution in channels_last is {speedup:.1f} times as fast as in NCHW."
        share = facts.gpu.spent_ns(facts.gpu.kind.among("layout")) / facts.steps.window_ns
        return f"Layout transposes take {percent(share)} of {the_step(facts)}."


def _cpu_speedup(facts: Facts) -> float | None:
    """How many times as fast a convolution in channels_last is on this machine; None if that was not measured."""
    peaks = facts.captured.cpu_peaks
    return None if peaks is None else peaks.channels_last_speedup


def _batch_norms(layout: ChannelsLast) -> str:
    """A sentence about those that channels_last makes faster; empty without any."""
    if not layout.batch_norms_ns:
        return ""
    return (
        f" Batch norms on channels-first tensors take {ms(layout.batch_norms_ns)}, more than the memory bandwidth "
        "explains: their kernels share a channel's pixels among few threads."
    )


def _undone(layout: ChannelsLast) -> str:
    """A sentence about paddings that bring channels-first tensors back; empty without any."""
    if not layout.undone_share:
        return ""
    return (
        f" Circular, reflecting or replicating paddings stand before {percent(layout.undone_share)} of the "
        "convolutions. They give channels-first tensors, so channels_last costs copies there."
    )


def _fix(facts: Facts) -> Fix:
    layouts = [model.channels_last for model in facts.captured.models if model.channels_last is not None]
    return CONVERT_INPUT if layouts and all(layouts) else CONVERT
