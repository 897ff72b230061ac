"""OP003: zero_grad launches one zero-fill kernel per parameter."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceopt.rules import (
    OP,
    Effort,
    Facts,
    Findings,
    Fix,
    Intervals,
    RemoveHost,
    RemoveLaunches,
    Rule,
    SetArguments,
    area_of,
    by_site,
    each_step,
    host_bounds,
    kernel_evidence,
    merge,
    ms,
    per_step,
    places,
    priced,
    site_locations,
    threshold,
)

ACCUMULATE = "torch::autograd::AccumulateGrad"
REMOVABLE = 0.95  # of zero_grad's host time
DISPATCH = 0.5  # of the host time of adding to a gradient: the autograd node itself remains


class ZeroGradKernels(Rule):
    """Measures the host time of `zero_grad` if it launches one fill per parameter, in a step in which the GPU waits for
    the host.

    Why it costs: hundreds of launches write zeros, and the backward pass then reads those zeros to add to them.

    How to fix: drop the gradients instead of zeroing them (the default since PyTorch 2.0).

        optimizer.zero_grad(set_to_none=True)

    When it is wrong: code that reads `param.grad` after zero_grad must handle None. Optimizers skip parameters without
    a gradient: momentum and weight decay no longer change those that a step does not use. If the GPU is busy all the
    time, the launches are hidden and the rule stays silent.

    Sources: PyTorch performance tuning guide, "Use parameter.grad = None".
    """

    code = "OP003"
    name = "zero-grad-kernels"
    title = "Set gradients to None instead of zeroing them"
    family = "optimizer"
    effort = Effort.ONE_LINE
    requires = ("gpu", "launches", "ops")

    min_share: float = threshold(0.01, "smallest saving, as a share of the step, to report")
    min_kernels: int = threshold(20, "fewest fills per step to report")

    def applies(self, facts: Facts) -> str | None:
        return None if facts.regions.zero_grad.any() else "The trace shows no zero_grad."

    def check(self, facts: Facts) -> Findings:
        fills = facts.regions.work_under(facts.regions.zero_grad) & facts.gpu.is_inside
        count = int(fills.sum()) / facts.steps.count
        if count < self.min_kernels:
            return
        area = facts.regions.area(facts.regions.zero_grad, facts.steps.thread)
        host_ns = facts.steps.host_mean_ns(area)
        added = _additions(facts, fills)
        gpu_ns, added_ns = (_typical_ns(facts, work) for work in (fills, added))
        saved = priced(
            facts,
            host_bounds(facts, merge(area, _adding(facts, added)), REMOVABLE, (gpu_ns + added_ns, gpu_ns + added_ns)),
            [RemoveHost(area, REMOVABLE), RemoveLaunches(fills), RemoveLaunches(added, DISPATCH)],
            "Assumes zero_grad, its fills, and the additions to the zeros in the backward pass are gone.",
            low=[RemoveHost(area, REMOVABLE), RemoveLaunches(fills)],
        )
        if saved.bounds_ns[1] < self.min_share * facts.step_ns:
            return
        rows = np.flatnonzero(facts.regions.zero_grad)
        sites = by_site(facts, rows)
        evidence = kernel_evidence(facts, fills, 3)
        yield self.finding(
            why=(
                f"zero_grad launches {count:,.0f} fills {per_step(facts)} and takes {ms(host_ns)} of host time in "
                f"{each_step(facts)}."
            ),
            saving=saved,
            evidence=evidence,
            locations=site_locations(sites) or places(evidence),
            fix=Fix(
                "Call zero_grad(set_to_none=True), the default since PyTorch 2.0.",
                edits=[SetArguments("optimizer.zero_grad", {"set_to_none": "True"})],
            ),
        )

    def passed(self, facts: Facts) -> str:
        fills = facts.regions.work_under(facts.regions.zero_grad) & facts.gpu.is_inside
        return f"zero_grad launches {fills.sum() / facts.steps.count:,.0f} fills {per_step(facts)}."


def _additions(facts: Facts, fills: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The kernels that add to the zeros. With several backward passes per step, later ones add to real gradients. The
    two cannot be told apart, so none counts then.
    """
    added = facts.regions.work_under(facts.regions.named(lambda name: name == ACCUMULATE, OP))
    added &= facts.gpu.is_inside
    return added if added.sum() <= 1.2 * fills.sum() else np.zeros(len(added), bool)


def _adding(facts: Facts, added: npt.NDArray[np.bool_]) -> Intervals:
    """When the host ran the operators that launched these kernels."""
    return area_of(facts, facts.links.op_slice[added])


def _typical_ns(facts: Facts, work: npt.NDArray[np.bool_]) -> float:
    return float(facts.gpu.step_ns[work].sum()) / facts.steps.count
