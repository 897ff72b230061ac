"""HS001: reading a single value from the GPU stalls the step."""

from __future__ import annotations

from traceopt.rules import SCALAR_READ, CallEvery, Fix, Risk
from traceopt.rules.bases.sync_rule import SyncRule


class ScalarRead(SyncRule):
    """Measures `.item()`, `float(t)`, `bool(t)`, `if t:`, `print(t)` and other reads of a single value, where they cost
    time: the GPU is idle while the host waits for the value, and again until the host has queued new work.

    Why it costs: PyTorch queues GPU work far ahead. Reading a value waits until the queue is empty. Then the GPU waits
    for the host to refill it.

    How to fix: keep the value on the GPU and read it rarely.

        total += loss.detach()              # stays on the GPU
        if step % 50 == 0:
            print(total.item() / 50)        # one wait in 50 steps
            total.zero_()

    Replace `if torch.isnan(x).any():` with a masked operation, or check every N steps. A value that decides what the
    step does next, such as an action for an environment or the end of a solver, has to be read: read several of them in
    one copy.

    The saving is what a replay of the step without the waits shows. One read early in the step can cost the lead that
    would hide all Python after it. Lines that save much more together than one by one are one finding.

    When it is wrong: if the host is the bottleneck anyway, it was not ahead of the GPU, and the step gets little
    shorter. Sync time while the GPU is busy is not counted.

    Sources: PyTorch performance tuning guide, "Avoid unnecessary CPU-GPU synchronization".
    """

    code = "HS001"
    name = "scalar-read"
    title = "Avoid reading single values from the GPU every step"
    risk = Risk.LATER
    risk_note = "Values arrive later"
    reason = SCALAR_READ
    does = "The host reads a single value from the GPU"
    fix = Fix(
        "If the value is for a log, accumulate it on the GPU (detached) and read it every N steps. If it decides what "
        "the step does next, read all such values in one copy.",
        edits=[CallEvery("log", 50)],
        code="total += loss.detach()\nif step % 50 == 0:\n    log(total.item() / 50)\n    total.zero_()",
    )
    inference_fix = Fix(
        "Keep the value on the GPU. If the host needs it, copy it into pinned memory with non_blocking=True and an "
        "event, and read it one step later.",
        "done_on_host.copy_(done, non_blocking=True)   # pinned\ncopied.record()\n...                    # launch the "
        "next step\ncopied.synchronize()   # then read done_on_host",
    )
