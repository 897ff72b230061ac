"""OP001: the optimizer launches one tiny kernel per parameter and operation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import RemoveHost
from traceopt.rules.common import by_site, host_bounds, locations, ms, places, typical_ns
from traceopt.rules.finding import Finding, Fix
from traceopt.rules.precision import kernel_evidence
from traceopt.rules.pricing import priced, scaled
from traceopt.rules.rule import Rule, threshold


@dataclass(frozen=True)
class SingleTensorOptimizer(Rule):
    """Measures the host time of `Optimizer.step` where it launches many tiny kernels, one or more for each parameter,
    in a step in which the GPU starves.

    Why it costs: hundreds of parameters times a few operations are thousands of launches of a microsecond's work each.
    The host needs many milliseconds for them. Where it never waits for the GPU, its own path is the step, and every
    millisecond of it counts.

    How to fix: let the optimizer treat all parameters at once.

        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=True)

    When it is wrong: under a GPU that is busy all the time the launches are hidden, and the rule stays silent. A few
    optimizers have no fused or foreach version.

    Sources: PyTorch documentation of torch.optim, "foreach, fused and for-loop implementations".
    """

    code: ClassVar[str] = "OP001"
    name: ClassVar[str] = "single-tensor-optimizer"
    title: ClassVar[str] = "Use a fused or foreach optimizer"
    family: ClassVar[str] = "optimizer"
    effort: ClassVar[str] = "One argument"
    requires: ClassVar[tuple[str, ...]] = ("gpu", "launches", "ops")

    min_share: float = threshold(0.01, "smallest saving, as a share of the median step, to report")
    min_kernels: int = threshold(50, "kernels a step from which an optimizer counts as single-tensor")
    max_median_us: float = threshold(20.0, "longest median kernel, in microseconds, that counts as tiny")
    removable: float = threshold(0.8, "share of the optimizer's host time that a fused optimizer saves")

    def applies(self, facts: Facts) -> str | None:
        return None if facts.regions.optimizer.any() else "No Optimizer.step was seen in the trace."

    def check(self, facts: Facts) -> Iterator[Finding]:
        kernels = facts.gpu.is_kernel & facts.regions.work_under(facts.regions.optimizer) & (facts.gpu.in_window > 0)
        count = int(kernels.sum()) / facts.steps.count
        if count < self.min_kernels or np.median(facts.gpu.work.duration[kernels]) > self.max_median_us * 1e3:
            return
        area = facts.regions.area(facts.regions.optimizer, facts.steps.thread)
        edges = facts.steps.edges
        host_ns = float(np.median(area.within(edges[:-1], edges[1:])))
        gpu_ns = typical_ns(facts, facts.gpu.work.start[kernels], facts.gpu.in_window[kernels])
        saved = priced(
            facts,
            host_bounds(facts, area, self.removable, (0.5 * gpu_ns, gpu_ns)),
            [RemoveHost(area, self.removable), *scaled(facts, kernels, 0.5)],
            f"The step without {self.removable:.0%} of the optimizer's host time and half of the GPU time of these "
            "kernels; up to all of both.",
            low=[RemoveHost(area, self.removable)],
            high=[RemoveHost(area), *scaled(facts, kernels, 0.0)],
        )
        if saved.bounds_ns[2] < self.min_share * facts.step_ns:
            return
        rows = np.flatnonzero(facts.regions.optimizer)
        sites = by_site(facts, rows, facts.slices.end[rows] - facts.slices.start[rows])
        median = float(np.median(facts.gpu.work.duration[kernels]))
        evidence = kernel_evidence(facts, kernels, 3)
        yield self.finding(
            why=(
                f"Optimizer.step launches {count:,.0f} kernels a step with a median of {ms(median)} and holds the host "
                f"for {ms(host_ns)} of each {ms(facts.step_ns)} step."
            ),
            saving=saved,
            evidence=evidence,
            locations=locations(sites) or places(evidence),
            fix=Fix(
                "Pass fused=True (Adam, AdamW, SGD, Adagrad on CUDA) or foreach=True to the optimizer.",
                "optimizer = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)",
            ),
        )

    def passed(self, facts: Facts) -> str:
        kernels = facts.gpu.is_kernel & facts.regions.work_under(facts.regions.optimizer) & (facts.gpu.in_window > 0)
        count = kernels.sum() / facts.steps.count
        return f"Optimizer.step launches {count:,.0f} kernels a step, which costs the step nothing."
