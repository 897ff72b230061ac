"""HS005: gradient clipping or the loss scaler stalls the step."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceopt.rules import SCALAR_READ, Effort, Facts, Fix
from traceopt.rules.bases.sync_rule import SyncRule
from traceopt.rules.fixes.optimizers import fused


class ClipOrScalerSync(SyncRule):
    """Measures reads of a single value inside gradient clipping or `GradScaler.step`, where they cost time: the GPU is
    idle while the host waits for the whole backward pass, and again until the host has queued the optimizer and the
    next step.

    Why it costs: the scaler checks for infinite gradients before it lets the optimizer run. A clipped norm that is
    checked or logged is read the same way. Both wait for the end of the backward pass.

    How to fix: let the GPU decide.

        optimizer = torch.optim.AdamW(params, fused=True)      # checks the scaler's result on the GPU: no wait
        with torch.autocast("cuda", dtype=torch.bfloat16): ... # bf16 needs no scaler (Ampere and later)
        norm = clip_grad_norm_(params, 1.0, foreach=True, error_if_nonfinite=False)
        if step % 50 == 0: log(norm.item())                    # read it rarely

    When it is wrong: if the host is the bottleneck anyway, it was not ahead of the GPU, and only the wait counts. Sync
    time while the GPU is busy is not counted. Without stacks, only the scaler's read can be recognized.

    Sources: PyTorch documentation of torch.amp.GradScaler and torch.nn.utils.clip_grad_norm_.
    """

    code = "HS005"
    name = "clip-or-scaler-sync"
    title = "Clip and scale gradients without a host sync"
    effort = Effort.ONE_LINE
    reason = SCALAR_READ
    does = "Gradient clipping or the loss scaler reads a value from the GPU"
    fix = Fix(
        "Use a fused optimizer (it checks the scaler's result on the GPU), or bf16 without a scaler (Ampere and "
        "later). Read the gradient norm every N steps.",
        edits=fused(["AdamW"]),
    )

    def rows(self, facts: Facts) -> npt.NDArray[np.bool_]:
        """Which syncs clip or scale gradients."""
        return np.asarray((facts.syncs.reason == self.reason) & facts.gradient_syncs & ~facts.reporting_syncs)
