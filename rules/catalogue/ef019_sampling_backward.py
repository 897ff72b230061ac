"""EF019: the backward pass of grid_sample or of an interpolation takes long, because it adds at scattered pixels."""

from __future__ import annotations

from traceopt.rules import (
    Facts,
    Findings,
    Fix,
    Risk,
    Rule,
    by_site,
    each_step,
    ms,
    name_of,
    named,
    percent,
    site_evidence,
    the_step,
    threshold,
)
from traceopt.rules.savings.work.backward_nodes import node_ns, products_ns


class SamplingBackward(Rule):
    """Measures the backward pass of `F.grid_sample` and of `F.interpolate` (bilinear, bicubic, trilinear) on a GPU, and
    reports it where it adds 16-bit numbers, or computes the gradient of the picture that grid_sample reads.

    Why it costs: a sample is made of several pixels, and several samples share a pixel. So the gradient of each sample
    is added to its pixels with atomic operations. GPUs add single 16-bit numbers much more slowly than FP32 numbers.

    How to fix: interpolate in FP32, and only there. If only the grid is trained, leave the gradient of the picture out.

        with torch.autocast("cuda", enabled=False):
            y = F.interpolate(x.float(), scale_factor=2, mode="bilinear").to(x.dtype)

        y = F.grid_sample(x.detach(), grid)   # only if x needs no gradient from here

    The gain is unknown until you try it. This is why the finding has no saving.

    When it is wrong: newer versions of PyTorch add two 16-bit numbers at a time where memory is aligned, and then FP32
    may be no faster. With detach() whatever computed the picture is no longer trained through this call.

    Sources: PyTorch issue 60724 ("bilinear interpolate is very slow under mixed precision training mode"); pull
    requests 58618 and 21879 of PyTorch.
    """

    code = "EF019"
    name = "sampling-backward"
    title = "Interpolate in FP32"
    family = "efficiency"
    risk = Risk.MEMORY
    risk_note = "FP32 copies of the pictures"
    confidence = "low"
    requires = ("gpu", "ops", "shapes")

    min_share: float = threshold(0.10, "smallest time of such a backward pass, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        return None if len(facts.sampling_gradients) else "No backward pass of grid_sample or of an interpolation."

    def check(self, facts: Facts) -> Findings:
        gradients = facts.sampling_gradients
        for mask, title, words, fix in (
            (gradients.narrow, None, "It adds 16-bit numbers, which GPUs do slowly.", IN_FP32),
            (
                gradients.of_picture & ~gradients.narrow,
                DETACH,
                "It also computes the gradient of the picture that grid_sample reads.",
                DETACHED,
            ),
        ):
            mine = gradients.rows[mask]
            time_ns = products_ns(facts, mine) if len(mine) else 0.0
            if time_ns < self.min_share * facts.step_ns:
                continue
            yield self.finding(
                title=title,
                why=f"{named(name_of(facts, int(mine[0])))} takes {ms(time_ns)} of {each_step(facts)}. {words}",
                evidence=site_evidence(facts, by_site(facts, mine, node_ns(facts, mine))),
                fix=fix,
            )

    def passed(self, facts: Facts) -> str:
        share = percent(products_ns(facts, facts.sampling_gradients.rows) / facts.step_ns)
        return f"The backward pass of grid_sample and interpolation takes {share} of {the_step(facts)}."


DETACH = "Check whether grid_sample has to pass a gradient to its picture"
IN_FP32 = Fix(
    "Run the interpolation in FP32 outside autocast, and compare the step time.",
    'with torch.autocast("cuda", enabled=False):\n'
    '    y = F.interpolate(x.float(), scale_factor=2, mode="bilinear").to(x.dtype)',
)
DETACHED = Fix(
    "If nothing before the picture is trained through this call, detach the picture. Otherwise leave it as it is.",
    "y = F.grid_sample(x.detach(), grid)",
)
