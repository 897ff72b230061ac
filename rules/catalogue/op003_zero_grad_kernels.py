"""OP003: zero_grad writes zeros with a kernel per parameter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from traceopt.analyzer.facts import Facts
from traceopt.rules.common import by_site, host_saving, locations, ms, places, typical_ns
from traceopt.rules.finding import Finding, Fix
from traceopt.rules.precision import kernel_evidence
from traceopt.rules.rule import Rule, threshold


@dataclass(frozen=True)
class ZeroGradKernels(Rule):
    """Measures the host time of `zero_grad` where it launches a fill for each parameter, in a step in which the GPU
    starves.

    Why it costs: hundreds of launches that write zeros, and the backward pass then reads the zeros again to add to
    them.

    How to fix: drop the gradients instead of zeroing them (the default since PyTorch 2.0).

        optimizer.zero_grad(set_to_none=True)

    When it is wrong: code that reads `param.grad` after zero_grad must be ready for None. Under a GPU that is busy all
    the time the launches are hidden, and the rule stays silent.

    Sources: PyTorch performance tuning guide, "Use parameter.grad = None".
    """

    code: ClassVar[str] = "OP003"
    name: ClassVar[str] = "zero-grad-kernels"
    title: ClassVar[str] = "Set gradients to None instead of zeroing them"
    family: ClassVar[str] = "optimizer"
    effort: ClassVar[str] = "One argument"
    requires: ClassVar[tuple[str, ...]] = ("gpu", "launches", "ops")

    min_share: float = threshold(0.01, "smallest saving, as a share of the median step, to report")
    min_kernels: int = threshold(20, "fills a step from which the finding makes sense")

    def applies(self, facts: Facts) -> str | None:
        return None if facts.regions.zero_grad.any() else "No zero_grad was seen in the trace."

    def check(self, facts: Facts) -> Iterator[Finding]:
        fills = facts.regions.work_under(facts.regions.zero_grad) & (facts.gpu.in_window > 0)
        count = int(fills.sum()) / facts.steps.count
        if count < self.min_kernels:
            return
        area = facts.regions.area(facts.regions.zero_grad, facts.steps.thread)
        edges = facts.steps.edges
        host_ns = float(np.median(area.within(edges[:-1], edges[1:])))
        if host_saving(facts, area, 0.95, "").share < self.min_share:
            return
        gpu_ns = typical_ns(facts, facts.gpu.work.start[fills], facts.gpu.in_window[fills])
        saved = host_saving(
            facts,
            area,
            0.95,
            "The host time of zero_grad: surely where the GPU starves beside it; beyond that as far as the host never "
            "waits for the GPU and the GPU starves elsewhere in the step. The fills themselves on top, and at most as "
            "much again in the backward pass, which reads the zeros.",
            gpu_ns=(gpu_ns, 2 * gpu_ns),
        )
        rows = np.flatnonzero(facts.regions.zero_grad)
        sites = by_site(facts, rows, facts.slices.end[rows] - facts.slices.start[rows])
        evidence = kernel_evidence(facts, fills, 3)
        yield self.finding(
            why=(
                f"zero_grad launches {count:,.0f} fills a step and holds the host for {ms(host_ns)} of each "
                f"{ms(facts.step_ns)} step."
            ),
            saving=saved,
            evidence=evidence,
            locations=locations(sites) or places(evidence),
            fix=Fix(
                "Call zero_grad(set_to_none=True), the default since PyTorch 2.0.",
                "optimizer.zero_grad(set_to_none=True)",
            ),
        )

    def passed(self, facts: Facts) -> str:
        fills = facts.regions.work_under(facts.regions.zero_grad) & (facts.gpu.in_window > 0)
        return f"zero_grad launches {fills.sum() / facts.steps.count:,.0f} fills a step."
