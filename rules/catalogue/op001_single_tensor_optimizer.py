"""OP001: the optimizer updates one parameter at a time, with a few operations each."""

from __future__ import annotations

import numpy as np

from traceopt.rules import (
    ANNOTATION,
    OP,
    Effort,
    Facts,
    Findings,
    Fix,
    Mask,
    RemoveHost,
    RemoveLaunches,
    Rule,
    by_site,
    counted,
    each_step,
    host_bounds,
    kernel_evidence,
    median,
    microseconds,
    ms,
    per_step,
    percent,
    places,
    priced,
    priced_host,
    scaled,
    site_evidence,
    site_locations,
    threshold,
)
from traceopt.rules.fixes.advice.constructed import optimizer_classes, optimizer_places
from traceopt.rules.fixes.optimizers import fused, fusible
from traceopt.rules.savings.work.cpu_experiments import measured_price
from traceopt.rules.savings.work.optimizer_steps import fused_step


class SingleTensorOptimizer(Rule):
    """Measures the host time of `Optimizer.step` if it launches many tiny kernels, one or more per parameter, in a step
    in which the GPU waits for the host. On a CPU-only run: the time of Adam, AdamW, SGD or Adagrad that is not fused.

    Why it costs: hundreds of parameters times a few operations are thousands of launches with a microsecond of work
    each. They take the host many milliseconds. If the host never waits for the GPU, the host is the critical path and
    every millisecond of it counts. On a CPU, each operation reads and writes the whole parameter; the fused optimizer
    does so once for all operations.

    How to fix: let the optimizer update all parameters at once.

        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=True)

    When it is wrong: if the GPU is busy all the time, the launches are hidden and the rule stays silent. A few
    optimizers have no fused or foreach version, and none accepts sparse gradients. On a CPU, fused=True needs PyTorch
    2.4 and foreach=True gains nothing. SGD gains less than Adam because it has fewer operations.

    Sources: PyTorch documentation of torch.optim, "foreach, fused and for-loop implementations".
    """

    code = "OP001"
    name = "single-tensor-optimizer"
    title = "Use a fused or foreach optimizer"
    family = "optimizer"
    effort = Effort.ONE_LINE
    requires = ("work", "launches", "ops")

    min_share: float = threshold(0.01, "smallest saving, as a share of the step, to report")
    min_kernels: int = threshold(
        50, "fewest kernels per call of Optimizer.step that count as a single-tensor optimizer"
    )
    max_median_us: float = threshold(20.0, "longest median kernel that counts as tiny, in microseconds")
    removable: float = threshold(0.8, "share of the optimizer's host time that a fused optimizer saves")
    removable_on_cpu: float = threshold(0.6, "share of the optimizer's whole time that it saves on a CPU-only run")

    def applies(self, facts: Facts) -> str | None:
        return None if facts.regions.optimizer.any() else "The trace shows no Optimizer.step."

    def check(self, facts: Facts) -> Findings:
        return self._on_gpu(facts) if facts.has_gpu else self._on_cpu(facts)

    def _on_gpu(self, facts: Facts) -> Findings:
        kernels, calls = _kernels(facts), _calls(facts)
        count = int(kernels.sum()) / facts.steps.count
        if count < self.min_kernels * calls or median(facts.gpu.work.duration[kernels]) > self.max_median_us * 1e3:
            return
        area = facts.regions.own_time(facts.regions.optimizer, facts.steps.thread)
        host_ns = facts.steps.host_mean_ns(area)
        gpu_ns = float(facts.gpu.step_ns[kernels].sum()) / facts.steps.count
        low, usual, _ = host_bounds(facts, area, self.removable, (0.5 * gpu_ns, gpu_ns))
        _, _, most = host_bounds(facts, area, 1.0, (gpu_ns, gpu_ns))
        saved = priced(
            facts,
            (low, usual, most),
            [RemoveHost(area, self.removable), *scaled(facts, kernels, 0.5)],
            f"Assumes the optimizer's host time drops by {percent(self.removable)} and the GPU time of its kernels by "
            "half; the high end removes all of both.",
            low=[RemoveHost(area, self.removable)],
            high=[RemoveHost(area), RemoveLaunches(kernels)],
        )
        if saved.bounds_ns[1] < self.min_share * facts.step_ns:
            return
        rows = np.flatnonzero(facts.regions.optimizer)
        sites = by_site(facts, rows)
        usual = median(facts.gpu.work.duration[kernels])
        evidence = kernel_evidence(facts, kernels, 3)
        yield self.finding(
            why=(
                f"Optimizer.step launches {count:,.0f} kernels {_in_calls(facts, calls)} with a median of "
                f"{microseconds(usual)} and takes {ms(host_ns)} of host time in {each_step(facts)}."
            ),
            saving=saved,
            evidence=evidence,
            locations=[*optimizer_places(facts), *(site_locations(sites) or places(evidence))],
            fix=Fix(
                "Pass fused=True or foreach=True to the optimizer.",
                edits=fused(optimizer_classes(facts), fusible(facts)),
            ),
        )

    def _on_cpu(self, facts: Facts) -> Findings:
        slices = facts.slices
        steps = tuple(f"Optimizer.step#{kind}.step" for kind in fusible(facts))
        optimizer = facts.regions.named(lambda name: name.startswith(steps), ANNOTATION)
        area = facts.regions.own_time(optimizer, facts.steps.thread)
        ops = np.flatnonzero((slices.kind == OP) & facts.regions.updates & area.contains(slices.start))
        if facts.regions.named(lambda name: name.startswith("aten::_fused_"), OP)[ops].any():
            return
        count, calls = len(ops) / facts.steps.count, _calls(facts)
        took_ns = facts.steps.host_mean_ns(area)
        if count < self.min_kernels * calls or self.removable_on_cpu * took_ns < self.min_share * facts.step_ns:
            return
        rows = np.flatnonzero(optimizer)
        sites = by_site(facts, rows, area.within(slices.start[rows], slices.end[rows]))
        sizes = fused_step(facts, "single", took_ns)
        assumed = priced_host(
            facts,
            area,
            took_ns,
            (0.3, self.removable_on_cpu, 0.8),
            f"Assumes the optimizer's time drops by {percent(self.removable_on_cpu)}; the range is 30% to 80%, "
            "because optimizers differ in how many operations they can fuse.",
        )
        yield self.finding(
            title="Use a fused optimizer",
            why=(
                f"Optimizer.step runs {count:,.0f} operators {_in_calls(facts, calls)}, one parameter at a time. "
                f"They take {ms(took_ns)} of {each_step(facts)}."
            ),
            saving=measured_price(facts, area, sizes, assumed),
            confidence="medium",
            evidence=site_evidence(facts, sites),
            locations=[*optimizer_places(facts), *site_locations(sites)],
            fix=Fix("Pass fused=True to the optimizer.", edits=fused(optimizer_classes(facts), fusible(facts))),
        )

    def passed(self, facts: Facts) -> str:
        if not facts.has_gpu:
            return "The optimizer is fused, takes little of the step, or has no fused version on a CPU."
        count = round(_kernels(facts).sum() / facts.steps.count)
        if not count:
            return "Optimizer.step launches no unfused kernels."
        kernels, calls = counted(count, "unfused kernel"), _in_calls(facts, _calls(facts))
        return f"Optimizer.step launches {kernels} {calls} without lengthening the step."


def _kernels(facts: Facts) -> Mask:
    """Kernels that optimizers launch inside the window, without fused ones."""
    gpu = facts.gpu
    return gpu.is_kernel & gpu.is_inside & ~gpu.fused & facts.regions.update_work


def _calls(facts: Facts) -> float:
    """How often a step calls Optimizer.step; at least once."""
    slices = facts.slices
    rows = slices.outermost(facts.regions.optimizer)
    return max(1.0, np.count_nonzero(facts.steps.host_window.contains(slices.start[rows])) / facts.steps.count)


def _in_calls(facts: Facts, calls: float) -> str:
    """How often, for a number of kernels or operators: "per step", "in 40 calls per step"."""
    return per_step(facts) if calls == 1 else f"in {calls:,.0f} calls {per_step(facts)}"
