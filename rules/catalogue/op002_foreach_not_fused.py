"""OP002: a foreach optimizer makes many passes over the parameters, where a fused one launches only a few kernels."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.vocabulary.causes.table import CPU_OPTIMIZER
from traceopt.rules import (
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Intervals,
    RemoveHost,
    Risk,
    Rule,
    by_site,
    each_step,
    host_bounds,
    kernel_evidence,
    ms,
    peak_caveat,
    per_step,
    places,
    priced,
    shorter,
    site_locations,
    threshold,
    union,
)
from traceopt.rules.fixes.advice.constructed import optimizer_classes, optimizer_places
from traceopt.rules.fixes.optimizers import fused, fusible
from traceopt.rules.savings.roofline import HBM_SHARE

SLOW_PASS = 2.0  # times the expected duration of the one pass, at worst
# Bytes that one pass moves per FP32 parameter: each value is read once and written once.
FUSED_BYTES = {"Adam": 28, "AdamW": 28, "SGD": 20, "Adagrad": 20}


class ForeachNotFused(Rule):
    """Measures the host time of the multi-tensor (foreach) operators in `Optimizer.step`, for an optimizer that has a
    fused version, in a step in which the GPU waits for the host.

    Why it costs: foreach launches a kernel for each operation of the update and each group of tensors, and moves all
    parameters through memory each time. Fused does the whole update in one pass, with a few launches.

    How to fix: one argument, for Adam, AdamW, SGD (PyTorch 2.3) and Adagrad (PyTorch 2.13) on floating-point parameters
    without sparse gradients.

        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)

    When it is wrong: a GPU-bound step gains only the kernel time, and little of it if the parameters are few. Fused
    sums in a different order, so the last bits differ. Test code that changes gradients in hooks of the optimizer's
    step, or that unscales them itself.

    Sources: PyTorch documentation of torch.optim, "foreach, fused and for-loop implementations".
    """

    code = "OP002"
    name = "foreach-not-fused"
    title = "Pass fused=True to the optimizer"
    family = "optimizer"
    effort = Effort.ONE_LINE
    risk = Risk.ROUNDING
    risk_note = "Last bits may differ"
    requires = ("gpu", "launches", "ops")

    min_share: float = threshold(0.01, "smallest saving, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        kind = _class(facts)
        if kind is None:
            return "The trace shows no Optimizer.step."
        if kind not in fusible(facts):
            return f"This torch has no fused {kind} for this run."
        if len(facts.host.rows_of(CPU_OPTIMIZER)):
            return "The optimizer runs on the CPU."
        return None if len(facts.foreach_updates) else f"{kind} runs no foreach operators."

    def check(self, facts: Facts) -> Findings:
        kind = _class(facts)
        rows = facts.foreach_updates
        rows = rows[facts.slices.thread[rows] == facts.steps.thread]
        area = facts.slices.area_of(rows)
        count = len(rows) / facts.steps.count
        kernels = facts.gpu.is_kernel & facts.regions.update_work & facts.gpu.is_inside
        gpu_ns = float(facts.gpu.step_ns[kernels].sum()) / facts.steps.count
        share = 1 - 1 / max(1.0, count)
        fused_ns = _fused_ns(facts, kind or "")
        more_ns = max(0.0, gpu_ns - fused_ns)
        passes_ns = more_ns if fused_ns else 0.0
        whole = _from_first_to_last(facts, rows)
        least_ns = max(0.0, gpu_ns - SLOW_PASS * fused_ns) if fused_ns else 0.0
        low, usual, _ = host_bounds(facts, whole, share, (passes_ns, more_ns))
        _, _, most = host_bounds(facts, whole, 1.0, (0.0, more_ns))
        saved = priced(
            facts,
            (low + least_ns, usual, most),
            [RemoveHost(area, share), *(shorter(facts, kernels, passes_ns) if passes_ns else [])],
            f"Assumes one operator replaces {count:.0f} foreach operators. {_passes(passes_ns)} the kernel time beyond "
            f"one pass over the parameters{peak_caveat(facts, 'hbm_gb_per_s')}.",
            low=[RemoveHost(area, share), *(shorter(facts, kernels, least_ns) if least_ns else [])],
            high=[RemoveHost(whole), *shorter(facts, kernels, more_ns)],
        )
        if saved.bounds_ns[1] < self.min_share * facts.step_ns:
            return
        host_ns = facts.steps.host_mean_ns(area)
        sites = by_site(facts, rows)
        evidence = kernel_evidence(facts, kernels, 3)
        recorded = [o for o in facts.captured.optimizers if o.class_name and o.class_name.endswith(f".{kind}")]
        yield self.finding(
            why=(
                f"{kind} runs {count:.0f} foreach operators {per_step(facts)}, which take {ms(host_ns)} of host time "
                f"{_and_of_the_gpu(facts, gpu_ns, fused_ns)}. The fused version is one operator."
            ),
            saving=saved,
            evidence=[
                *evidence,
                *(
                    Evidence(
                        f"{kind}: foreach={o.foreach}, fused={o.fused}", detail=f"{o.tensors} tensors, as recorded"
                    )
                    for o in recorded[:1]
                ),
            ],
            locations=[*optimizer_places(facts), *(site_locations(sites) or places(evidence))],
            fix=Fix(
                "Pass fused=True when you create the optimizer.",
                edits=fused(optimizer_classes(facts)[:1], fusible(facts)),
            ),
            shares_cause_with=["LB002"],
        )

    def passed(self, facts: Facts) -> str:
        return f"{_class(facts)} runs foreach operators, which do not lengthen the step."


def _class(facts: Facts) -> str | None:
    """The class of the first optimizer that steps."""
    return next(iter(optimizer_classes(facts)), None)


def _passes(passes_ns: float) -> str:
    if passes_ns:
        return "The high end also removes the host time between them. At worst, a pass takes twice as long. All remove"
    return "The high end also removes the host time between them and"


def _and_of_the_gpu(facts: Facts, gpu_ns: float, fused_ns: float) -> str:
    """How long the kernels of the operators take, if they take longer than one pass would."""
    step = f"in {each_step(facts)}"
    if gpu_ns <= fused_ns or not fused_ns:
        return f"{step} while the GPU waits"
    return f"and {ms(gpu_ns)} of GPU time {step}, where one pass over the parameters takes {ms(fused_ns)}"


def _from_first_to_last(facts: Facts, rows: np.ndarray) -> Intervals:
    """From the first to the last of these operators in each step of the optimizer."""
    spans = facts.slices.spans(rows, facts.regions.optimizer)
    return union(spans.start, spans.end)


def _fused_ns(facts: Facts, kind: str) -> float:
    """Time of one pass over the parameters at memory bandwidth; 0 if either is unknown."""
    accelerator = facts.device.accelerator
    bandwidth = accelerator.hbm_gb_per_s if accelerator is not None else None
    counts = [o.parameters or 0 for o in facts.captured.optimizers if (o.class_name or "").endswith(f".{kind}")]
    parameters = sum(counts) or facts.foreach_values
    return parameters * FUSED_BYTES[kind] / (bandwidth * HBM_SHARE) if bandwidth else 0.0
