"""CV001: tensors are transposed between NCHW and NHWC around convolutions."""

from __future__ import annotations

from traceopt.rules import (
    Effort,
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

KEEP_LAYOUT = Fix(
    "channels_last alone may make the step longer. First pad in a way that keeps the layout: join slices with "
    "torch.cat, or pad with zeros. Then convert the model and its input, and measure.",
    "x = torch.cat([x[..., -1:], x, x[..., :1]], dim=-1)  # circular; keeps channels_last",
)


class LayoutConversion(Rule):
    """Measures kernels that transpose activations and weights between NCHW and NHWC in a model with convolutions, and
    batch norms on NCHW tensors that take longer than the memory bandwidth explains (with recorded shapes).

    Why it costs: Tensor Cores and matrix cores convolve in NHWC. An NCHW model is transposed before and after each
    convolution, and each transpose reads and writes the whole tensor. Batch norms are slow, too: the kernels for NCHW
    work on each channel apart, and few channels do not fill the device.

    How to fix: keep the model and its input in channels_last.

        model = model.to(memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)

    When it is wrong: operators without a channels_last version bring the transposes back, and copies of strided tensors
    are slower than transposes. Circular, reflecting and replicating paddings are such operators: the estimate counts
    only convolutions without them, and there is none if they stand before half of the convolutions. A single transpose
    of the model's input is normal.

    Sources: PyTorch tutorial, "Channels Last Memory Format"; NVIDIA, "Convolutional Layers User's Guide".
    """

    code = "CV001"
    name = "layout-conversion"
    title = "Use channels_last for convolutions"
    family = "convolution"
    effort = Effort.ONE_LINE
    confidence = "medium"
    requires = ("gpu",)

    min_share: float = threshold(0.01, "smallest time of layout transposes, as a share of the step, to report")

    most_undone: float = threshold(
        0.5, "paddings that undo channels_last for each convolution, from which none is saved"
    )

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
                + _undone(layout)
            ),
            saving=layout.price() if layout.undone_share < self.most_undone else None,
            evidence=evidence,
            locations=places(evidence),
            fix=_fix(facts) if layout.undone_share < self.most_undone else KEEP_LAYOUT,
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


def _undone(layout: ChannelsLast) -> str:
    """A sentence about paddings that bring channels-first tensors back; empty without any."""
    if not layout.undone_share:
        return ""
    return (
        f" Circular, reflecting or replicating paddings stand before {percent(layout.undone_share)} of the "
        "convolutions. They give channels-first tensors, so channels_last costs copies there."
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
