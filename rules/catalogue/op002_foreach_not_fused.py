"""OP002: a foreach optimizer runs in a host-bound step, where a fused one would launch only a few kernels."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.vocabulary.causes.table import CPU_OPTIMIZER
from traceopt.rules import (
    OP,
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

    When it is wrong: a GPU-bound step gains only the kernel time. Fused sums in a different order, so the last bits
    differ. Test code that changes gradients in hooks of the optimizer's step, or that unscales them itself.

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
        return None if _foreach(facts).any() else f"{kind} runs no foreach operators."

    def check(self, facts: Facts) -> Findings:
        kind = _class(facts)
        rows = _foreach(facts)
        rows = rows[facts.slices.thread[rows] == facts.steps.thread]
        area = facts.slices.area_of(rows)
        count = len(rows) / facts.steps.count
        kernels = facts.gpu.is_kernel & facts.regions.work_under(facts.regions.optimizer) & facts.gpu.is_inside
        gpu_ns = float(facts.gpu.step_ns[kernels].sum()) / facts.steps.count
        share = 1 - 1 / max(1.0, count)
        more_ns = max(0.0, gpu_ns - _fused_ns(facts, kind or ""))
        whole = _from_first_to_last(facts, rows)
        low, usual, _ = host_bounds(facts, whole, share)
        _, _, most = host_bounds(facts, whole, 1.0, (0.0, more_ns))
        saved = priced(
            facts,
            (low, usual, most),
            [RemoveHost(area, share)],
            f"Assumes one operator replaces {count:.0f} foreach operators. The high end also removes the host time "
            "between them and the kernel time beyond one pass over the parameters"
            f"{peak_caveat(facts, 'hbm_gb_per_s')}.",
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
                f"in {each_step(facts)} while the GPU waits. The fused version is one operator."
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


def _foreach(facts: Facts) -> np.ndarray:
    rows = np.flatnonzero(facts.regions.named(lambda name: name.startswith("aten::_foreach_"), OP))
    return rows[facts.slices.ancestor(rows, facts.regions.optimizer) >= 0]


def _from_first_to_last(facts: Facts, rows: np.ndarray) -> Intervals:
    """From the first to the last of these operators in each step of the optimizer."""
    spans = facts.slices.spans(rows, facts.regions.optimizer)
    return union(spans.start, spans.end)


def _fused_ns(facts: Facts, kind: str) -> float:
    """Time of one pass over the recorded parameters at memory bandwidth; 0 if either is unknown."""
    accelerator = facts.device.accelerator
    bandwidth = accelerator.hbm_gb_per_s if accelerator is not None else None
    counts = [o.parameters or 0 for o in facts.captured.optimizers if (o.class_name or "").endswith(f".{kind}")]
    return sum(counts) * FUSED_BYTES[kind] / (bandwidth * HBM_SHARE) if bandwidth else 0.0
