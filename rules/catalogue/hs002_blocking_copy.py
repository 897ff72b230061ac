"""HS002: copying a tensor to the host stalls the step."""

from __future__ import annotations

from traceopt.rules import BLOCKING_COPY, Fix, Risk
from traceopt.rules.bases.sync_rule import SyncRule


class BlockingCopy(SyncRule):
    """Measures `.cpu()`, `.numpy()`, `.tolist()` and blocking `.to()` in the step, where they cost time: the GPU is
    idle while the host waits for the copy, and again until the host has queued new work. The time in which the GPU only
    copies counts as well, if it takes 1% of the step.

    Why it costs: a copy to pageable host memory returns only when everything queued before it is done. By then the GPU
    has nothing left to do. The copy itself is slow, because the driver stages it through a pinned buffer.

    How to fix: copy into pinned memory without blocking, and read the result once an event says it is there. Or compute
    on the GPU what the host needs the tensor for.

        host = torch.empty(pred.shape, dtype=pred.dtype, pin_memory=True)
        host.copy_(pred, non_blocking=True)
        done = torch.cuda.Event(); done.record()
        ...                      # launch the next step
        done.synchronize()       # then use `host`

    When it is wrong: the last copy of an inference pipeline must wait; only its tail is then reported. Sync time while
    the GPU computes is not counted.

    Sources: PyTorch, "A guide on good usage of non_blocking and pin_memory".
    """

    code = "HS002"
    name = "blocking-copy"
    title = "Avoid blocking copies to the host inside the step"
    risk = Risk.LATER
    reason = BLOCKING_COPY
    does = "The host copies a tensor and waits for it"
    fix = Fix(
        "Compute the result on the GPU, copy it less often, or copy it into pinned memory with non_blocking=True and "
        "an event.",
        "correct += (logits.argmax(1) == labels).sum()   # stays on the GPU\n"
        "if step % 50 == 0:\n    accuracy = correct.item() / seen",
    )
    inference_fix = Fix(
        "If the host computes what the next step needs, such as the next token, compute it on the GPU. Copy other "
        "results once per batch, into pinned memory with non_blocking=True and an event, while the next batch runs.",
        "token = torch.multinomial(probabilities, 1)   # stays on the GPU\n"
        "host.copy_(result, non_blocking=True)         # host: pinned memory\ncopied.record()",
    )
