"""CV002: convolutions add a bias that the next batch norm cancels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceopt.rules import (
    OP,
    Effort,
    Facts,
    Findings,
    Fix,
    Risk,
    Rule,
    by_site,
    each_step,
    launched_ns,
    ms,
    per_step,
    percent,
    priced,
    scaled,
    site_evidence,
    the_step,
    threshold,
)

ADDS = frozenset(("aten::add", "aten::add_"))
BACKWARD = "aten::convolution_backward"


class ConvBiasBeforeNorm(Rule):
    """Measures the kernels that add a convolution's bias and sum its gradient, if a batch norm directly follows the
    convolution.

    Why it costs: batch norm subtracts the mean of each channel, which cancels the bias. Adding the bias passes the
    whole activation through memory, and so does its gradient.

    How to fix: drop the bias. The norm has its own.

        nn.Sequential(nn.Conv2d(64, 128, 3, padding=1, bias=False), nn.BatchNorm2d(128), nn.ReLU())

    When it is wrong: in evaluation mode the norm subtracts a fixed mean, so a trained bias counts. Fold it into the
    norm (`torch.nn.utils.fusion.fuse_conv_bn_eval`). Drop the bias when you load a checkpoint that has one.

    Sources: Ioffe and Szegedy, "Batch Normalization" (2015), section 3.2; PyTorch performance tuning guide.
    """

    code = "CV002"
    name = "conv-bias-before-norm"
    title = "Drop the bias of convolutions before a batch norm"
    family = "convolution"
    effort = Effort.ONE_LINE
    risk = Risk.OTHER
    risk_note = "Old checkpoints need the bias dropped"
    requires = ("gpu", "launches", "shapes")

    min_share: float = threshold(0.01, "smallest time of the bias kernels, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        return None if len(facts.convolutions.with_bias) else "No convolution with a bias in this trace."

    def check(self, facts: Facts) -> Findings:
        part = _bias_work(facts)
        time = launched_ns(facts, part)
        if time < self.min_share * facts.step_ns:
            return
        chosen = facts.convolutions.with_bias[facts.convolutions.before_norm]
        sites = by_site(facts, chosen)
        gradients = " and their gradients" if facts.trains else ""
        yield self.finding(
            why=(
                f"{len(chosen) / facts.steps.count:,.0f} convolutions {per_step(facts)} have a bias that the next "
                f"batch norm cancels. The biases{gradients} take {ms(time)} of {each_step(facts)}."
            ),
            saving=priced(
                facts,
                (0.8 * time, time, time),
                scaled(facts, part > 0, 1 - part),
                "Assumes the bias kernels go away; at most their GPU time.",
            ),
            evidence=site_evidence(facts, sites, lambda _: "Convolution with a bias before a batch norm"),
            fix=Fix("Pass bias=False to these convolutions.", "nn.Conv2d(64, 128, 3, padding=1, bias=False)")
            if facts.trains
            else Fix(
                "In evaluation mode, fold each batch norm into its convolution, which also removes its kernel.",
                "conv = torch.nn.utils.fusion.fuse_conv_bn_eval(conv.eval(), norm.eval())",
            ),
        )

    def passed(self, facts: Facts) -> str:
        share = percent(launched_ns(facts, _bias_work(facts)) / facts.step_ns)
        return f"Convolution biases before a batch norm take {share} of {the_step(facts)}."


def _bias_work(facts: Facts) -> npt.NDArray[np.float64]:
    """Share (0..1) of each row of the device's work that these biases cause: adding them, and their gradients."""
    regions, names = facts.regions, facts.trace.names
    rows, useless = facts.convolutions.with_bias, facts.convolutions.before_norm
    op = regions.op_of_work
    adds = np.array([name in ADDS for name in names] or [False])
    sums = np.array([name == "aten::sum" for name in names] or [False])
    mask = facts.slices.mask(rows[useless])
    forward = regions.work_under(mask) & (op >= 0) & adds[op]
    backward = regions.work_under(regions.named(lambda name: name == BACKWARD, OP)) & (op >= 0) & sums[op]
    share = float(useless.mean()) if len(useless) else 0.0  # the other biases keep their gradients
    return np.asarray(np.maximum(forward.astype(np.float64), share * backward))
