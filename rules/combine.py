"""The top fixes together. Savings overlap, so they are combined by a model of the step, never summed.

Until replay takes its place: fixes of the host's side share the GPU's idle time, fixes of the GPU's side share its busy
time, and neither kind can give back more than there is of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.analyzer.facts import Facts
from traceopt.result import Combined
from traceopt.rules.finding import Finding

TOP = 3
GPU_SIDE = frozenset(("TC", "GM", "AT", "CV", "CM", "LB003", "DL003"))  # fixes that shorten the GPU's own work


def combine(findings: Sequence[Finding], facts: Facts) -> Combined | None:
    """None when no finding carries a saving of 3 % of the step or more."""
    top = [f for f in findings if f.saving is not None and f.impact in ("high", "medium")][:TOP]
    if not top:
        return None
    step_us = facts.step_ns / 1e3
    largest = max(f.saving.est_us for f in top if f.saving)
    gpu_side = sum(f.saving.est_us for f in top if f.saving and _on_gpu(f))
    host_side = sum(f.saving.est_us for f in top if f.saving and not _on_gpu(f))
    busy_us = facts.gpu.busy.total / facts.steps.count / 1e3 if facts.has_gpu else 0.0
    idle_us = max(0.0, step_us - busy_us)
    host_side = min(host_side, idle_us if facts.has_gpu else step_us)
    gpu_side = min(gpu_side, busy_us)
    saving = min(max(largest, host_side + gpu_side), 0.95 * step_us)
    return Combined(
        codes=[f.code for f in top],
        saving_us=round(saving, 3),
        share=round(saving / step_us, 6),
        step_us_after=round(step_us - saving, 3),
        replay_error_share=None,
    )


def _on_gpu(finding: Finding) -> bool:
    return finding.code[:2] in GPU_SIDE or finding.code in GPU_SIDE
