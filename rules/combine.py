"""The top fixes together. Savings overlap, so they are combined by a model of the step, never summed.

Until replay takes its place the model knows two paths. The host's path is the step less the time that the host waits
for a working GPU; the GPU's path is the step less the time that it starves for the host. Each fix shortens its own
path, and the longer of the two is the step.
"""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.analyzer.facts import Facts
from traceopt.result import Combined
from traceopt.rules.common import gpu_path_ns, host_path_ns
from traceopt.rules.finding import Finding

TOP = 3
# Fixes that shorten the GPU's own work; all others shorten the host's.
GPU_FAMILIES = ("TC", "GM", "AT", "CV", "CM")
GPU_CODES = ("LB003", "DL003", "DL004")


def combine(findings: Sequence[Finding], facts: Facts) -> Combined | None:
    """None when no finding saves 3 % of the step or more, or when together they give back nothing that is sure."""
    top = _independent(findings)[:TOP]
    if not top:
        return None
    step = facts.step_ns / 1e3
    gpu_us = sum(f.saving.est_us for f in top if f.saving and on_gpu(f))
    host_us = sum(f.saving.est_us for f in top if f.saving and not on_gpu(f))
    if facts.has_gpu:
        after = max(host_path_ns(facts) / 1e3 - host_us, gpu_path_ns(facts) / 1e3 - gpu_us)
    else:
        after = step - host_us - gpu_us
    surest = max(f.saving.low_us for f in top if f.saving)
    saving = min(max(step - after, surest), host_us + gpu_us, 0.95 * step)
    if saving <= 0:
        return None
    return Combined(
        codes=[f.code for f in top],
        saving_us=round(saving, 3),
        share=round(saving / step, 6),
        step_us_after=round(step - saving, 3),
        replay_error_share=None,
    )


def _independent(findings: Sequence[Finding]) -> list[Finding]:
    """Findings worth combining; of those that share a cause only the first."""
    chosen: list[Finding] = []
    for finding in findings:
        alike = any(finding.code in f.shares_cause_with or f.code in finding.shares_cause_with for f in chosen)
        if finding.saving is not None and finding.impact in ("high", "medium") and not alike:
            chosen.append(finding)
    return chosen


def on_gpu(finding: Finding) -> bool:
    """Whether the fix shortens the GPU's own work."""
    return finding.code.startswith(GPU_FAMILIES) or finding.code in GPU_CODES
