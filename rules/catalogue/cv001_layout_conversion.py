"""CV001: tensors are transposed between NCHW and NHWC around convolutions."""

from __future__ import annotations

from traceopt.rules import (
    Facts,
    Findings,
    Fix,
    Rule,
    each_step,
    kernel_evidence,
    ms,
    per_step,
    percent,
    places,
    priced_work,
    the_step,
    threshold,
)


class LayoutConversion(Rule):
    """Measures kernels that transpose activations and weights between NCHW and NHWC in a model with convolutions.

    Why it costs: Tensor Cores and matrix cores convolve in NHWC. An NCHW model is transposed before and after each
    convolution, and each transpose reads and writes the whole tensor.

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
        work = facts.gpu.kind.among("layout") & facts.gpu.is_inside
        count = facts.steps.count
        time = facts.gpu.area(work).total / count
        if time < self.min_share * facts.step_ns:
            return
        evidence = kernel_evidence(facts, work)
        yield self.finding(
            why=(
                f"{work.sum() / count:,.0f} layout transposes {per_step(facts)} take {ms(time)} of "
                f"{each_step(facts)}, or {percent(facts.gpu.area(work).total / max(1, facts.gpu.busy.total))} of the "
                "GPU's busy time."
            ),
            saving=priced_work(
                facts,
                work,
                (0.5 * time, 0.9 * time, time),
                "Assumes 50%, 90% or 100% of the transposes' time goes away; some remain if an operator needs NCHW.",
            ),
            evidence=evidence,
            locations=places(evidence),
            fix=_fix(facts),
        )

    def passed(self, facts: Facts) -> str:
        share = facts.gpu.area(facts.gpu.kind.among("layout")).total / facts.steps.window_ns
        return f"Layout transposes take {percent(share)} of {the_step(facts)}."


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
