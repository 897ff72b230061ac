"""HS004: a data-dependent output size stalls the step."""

from __future__ import annotations

from traceopt.rules import DATA_DEPENDENT, Effort, Fix
from traceopt.rules.bases.sync_rule import SyncRule


class DataDependentShape(SyncRule):
    """Measures operators whose output size depends on values (`nonzero`, `masked_select`, `unique`, boolean indexing,
    `repeat_interleave`), where the sync inside them costs time.

    Why it costs: the host must know the size before it can continue, so it waits for the GPU. Then the GPU waits for
    the host.

    How to fix: keep shapes static. Mask instead of selecting, or pass the size if you know it.

        loss = (per_token * mask).sum() / mask.sum()                # instead of per_token[mask].mean()
        x = torch.where(mask, a, b)                                 # instead of x[mask] = a[mask]
        y = torch.repeat_interleave(x, counts, output_size=total)   # the size is known: no sync

    When it is wrong: if the selection drops most of the work that follows, computing everything may cost more than the
    stall. Sync time while the GPU is busy is not counted.

    Sources: PyTorch documentation of torch.nonzero and torch.repeat_interleave (notes on synchronization).
    """

    code = "HS004"
    name = "data-dependent-shape"
    title = "Avoid data-dependent tensor shapes"
    effort = Effort.REFACTORING
    reason = DATA_DEPENDENT
    does = "An operator needs a size that only the GPU knows"
    fix = Fix(
        "Use masks (torch.where, multiply by a mask) instead of boolean indexing, or pass the known output size.",
        "loss = (per_token * mask).sum() / mask.sum()",
    )
    inference_fix = Fix(fix.text, "scores = torch.where(mask, scores, 0)   # instead of scores[mask]")
