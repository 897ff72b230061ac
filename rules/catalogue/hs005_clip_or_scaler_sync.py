"""HS005: gradient clipping or the loss scaler reads a value back, and the GPU runs dry."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.stalls.syncs import SCALAR_READ
from traceopt.result.finding import Fix
from traceopt.rules.bases.sync_rule import SyncRule


class ClipOrScalerSync(SyncRule):
    """Measures reads of one value inside gradient clipping or `GradScaler.step`, where they cost time: the GPU starves
    while the host waits for the whole backward pass, and again until it has queued the optimizer and the next step.

    Why it costs: the scaler asks whether any gradient is infinite before it lets the optimizer run; a clipped norm that
    is checked or logged is read back the same way. Both wait for the end of the backward pass.

    How to fix: let the GPU decide.

        optimizer = torch.optim.AdamW(params, fused=True)      # takes the scaler's verdict on the GPU: no wait
        with torch.autocast("cuda", dtype=torch.bfloat16): ... # bf16 needs no scaler (Ampere and later)
        norm = clip_grad_norm_(params, 1.0, foreach=True, error_if_nonfinite=False)
        if step % 50 == 0: log(norm.item())                    # read it rarely

    When it is wrong: where the host is the bottleneck anyway, it had no lead to lose, and only the wait counts. Sync
    time under a working GPU is not counted. Without stacks only the scaler's read can be told from others.

    Sources: PyTorch documentation of torch.amp.GradScaler and torch.nn.utils.clip_grad_norm_.
    """

    code: ClassVar[str] = "HS005"
    name: ClassVar[str] = "clip-or-scaler-sync"
    title: ClassVar[str] = "Clip and scale gradients without reading values back"
    effort: ClassVar[str] = "One argument"
    reason: ClassVar[str] = SCALAR_READ
    does: ClassVar[str] = "Gradient clipping or the loss scaler reads a value back"
    fix: ClassVar[Fix] = Fix(
        "Use a fused optimizer (it takes the scaler's verdict on the GPU) or bf16 without a scaler; read the gradient "
        "norm every N steps.",
        "optimizer = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)",
    )

    def rows(self, facts: Facts) -> npt.NDArray[np.bool_]:
        """Those of clipping and scaling."""
        return np.asarray((facts.syncs.reason == self.reason) & facts.gradient_syncs & ~facts.reporting_syncs)
