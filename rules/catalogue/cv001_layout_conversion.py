"""CV001: tensors are transposed between NCHW and NHWC around convolutions."""

from __future__ import annotations

from traceopt.rules import (
    Facts,
    Findings,
    Fix,
    Rule,
    each_step,
    ms,
    per_step,
    percent,
    places,
    the_step,
    threshold,
)
from traceopt.rules.savings.channels_last import ChannelsLast


class LayoutConversion(Rule):
    """Measures kernels that transpose activations and weights between NCHW and NHWC in a model with convolutions, and
    batch norms on NCHW tensors that take longer than the memory bandwidth explains (with recorded shapes).

    Why it costs: Tensor Cores and matrix cores convolve in NHWC. An NCHW model is transposed before and after each
    convolution, and each transpose reads and writes the whole tensor. Batch norms are slow, too: the kernels for NCHW
    work on each channel apart, and few channels do not fill the device.

    How to fix: keep the model and its input in channels_last.

        model = model.to(memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)

    When it is wrong: operators without a channels_last version bring the transposes back. A single transpose of the
    model's input is normal.

    Sources: PyTorch tutorial, "Channels Last Memory Format"; NVIDIA, "Convolutional Layers User's Guide".
    """

    code = "CV001"
    name = "layout-conversion"
    title = "Use channels_last for convolutions"
    family = "convolution"
    effort = "Two lines"
    confidence = "medium"
    requires = ("gpu",)

    min_share: float = threshold(0.01, "smallest time of layout transposes, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        return None if facts.gpu.kind.among("conv").any() else "No convolutions in this trace."

    def check(self, facts: Facts) -> Findings:
        layout, count = ChannelsLast(facts), facts.steps.count
        if layout.transposes_ns < self.min_share * facts.step_ns:
            return
        evidence = layout.evidence()
        share = percent(facts.gpu.area(layout.transposes).total / max(1, facts.gpu.busy.total))
        yield self.finding(
            why=(
                f"{layout.transposes.sum() / count:,.0f} layout transposes {per_step(facts)} take "
                f"{ms(layout.transposes_ns)} of {each_step(facts)}, or {share} of the GPU's busy time."
                + _batch_norms(layout)
            ),
            saving=layout.price(),
            evidence=evidence,
            locations=places(evidence),
            fix=_fix(facts),
        )

    def passed(self, facts: Facts) -> str:
        share = facts.gpu.area(facts.gpu.kind.among("layout")).total / facts.steps.window_ns
        return f"Layout transposes take {percent(share)} of {the_step(facts)}."


def _batch_norms(layout: ChannelsLast) -> str:
    """A sentence about those that channels_last makes faster; empty without any."""
    if not layout.batch_norms_ns:
        return ""
    return (
        f" Batch norms on channels-first tensors take {ms(layout.batch_norms_ns)}, more than the memory bandwidth "
        "explains: their kernels share a channel's pixels among few threads."
    )


def _fix(facts: Facts) -> Fix:
    images = "images = images.to(memory_format=torch.channels_last)"
    layouts = [model.channels_last for model in facts.captured.models if model.channels_last is not None]
    if layouts and all(layouts):
        return Fix(
            "The recorded model weights are already in channels_last. Convert the input too, and look for operators "
            "that bring NCHW back. The evidence names the operators that launch the transposes.",
            images,
        )
    return Fix(
        "Convert the model and its input to channels_last once.",
        f"model = model.to(memory_format=torch.channels_last)\n{images}",
    )
