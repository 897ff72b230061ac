"""What the precision rules share: which work is FP32 without Tensor Cores, and what a narrower type would save."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.kernel_names import short_name
from traceopt.rules.common import gpu_saving, place_of_work
from traceopt.rules.finding import Evidence, Saving

Mask = npt.NDArray[np.bool_]


def fp32_work(facts: Facts) -> Mask:
    """Products in FP32 on kernels known not to use Tensor Cores. Shape (len(gpu.work),)."""
    return facts.products.unused & np.isin(facts.products.dtype, ("fp32", ""))


def uses_tensor_cores(facts: Facts) -> float:
    """Tensor Core share of the product time."""
    eligible = facts.products.eligible_ns
    return facts.products.used_ns / eligible if eligible else 0.0


def fp32_saving(facts: Facts, work: Mask, dtype: str, low: float, expected: float, high: float) -> Saving:
    """Kernel time that faster kernels give back; `low`..`high` are speed-ups, capped by the ratio of the peaks."""
    accelerator = facts.device.accelerator
    wide = accelerator.peak("fp32") if accelerator else None
    narrow = accelerator.peak(dtype) if accelerator else None
    ratio = narrow / wide if narrow and wide else high
    edges = facts.steps.edges
    area = facts.gpu.area(work)
    time = float(np.median(area.within(edges[:-1], edges[1:])))
    if not time:
        time = area.total / facts.steps.count
    gain = [1 - 1 / max(1.0, min(speedup, ratio)) for speedup in (low, expected, high)]
    peak = f"{ratio:.0f} times the peak rate" if narrow and wide else "a higher peak rate"
    return gpu_saving(
        facts,
        *(time * g for g in gain),
        f"GPU time of these kernels at {low:g} to {min(high, ratio):g} times the speed ({dtype} has {peak}); the step "
        "follows as far as the host keeps up.",
    )


def kernel_evidence(facts: Facts, work: Mask, limit: int = 5) -> list[Evidence]:
    """The longest kernels of a mask, with the operator that launched them and the user's line."""
    rows = np.flatnonzero(work)
    codes, group = np.unique(facts.gpu.work.name[rows], return_inverse=True)
    total = np.bincount(group, weights=facts.gpu.in_window[rows], minlength=len(codes))
    count = facts.steps.count
    out = []
    for index in np.argsort(-total, kind="stable")[:limit]:
        mine = rows[group == index]
        longest = int(mine[facts.gpu.in_window[mine].argmax()])
        op = int(facts.regions.op_of_work[longest])
        out.append(
            Evidence(
                what=short_name(facts.trace.names[codes[index]]),
                us_per_step=round(float(total[index]) / count / 1e3, 3),
                calls_per_step=round(len(mine) / count, 3),
                detail=facts.trace.names[op] if op >= 0 else None,
                location=place_of_work(facts, longest),
            )
        )
    return out
