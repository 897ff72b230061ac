"""HS003: an explicit synchronize stalls the step."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceopt.rules import EXPLICIT, Effort, Facts, Fix, RemoveCall, name_of
from traceopt.rules.bases.sync_rule import SyncRule

WAIT_LATER = Fix(
    "A wait for an event or a stream may be for a result on the host, such as a copy into pinned memory. Then wait "
    "later, after the next step is launched, just before the result is used. Otherwise remove the call.",
    "done.record()          # after the copy\n...                    # launch the next step\ndone.synchronize()     "
    "# then use the result",
)


class ExplicitSynchronize(SyncRule):
    """Measures `torch.cuda.synchronize()` and stream and event synchronization outside any operator, where they cost
    time.

    Why it costs: the call returns when the GPU has nothing left to do, so the GPU is idle until the host has queued new
    work. The usual causes are timing code and debugging leftovers.

    How to fix: remove it. To time GPU work, record events and read them later.

        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record(); train_step(); end.record()
        if step % 50 == 0:
            end.synchronize()
            print(start.elapsed_time(end))

    A wait for an event or a stream may be needed: the host may read what was copied without blocking. Then wait later,
    after the next step is launched. A sync after such a copy is not reported. MM003 covers those inside
    `torch.cuda.empty_cache()`.

    When it is wrong: a profiler or benchmark that synchronizes every step for its own measurement shows up here
    although the real run does not synchronize. A synchronize while the GPU is busy is not counted.

    Sources: PyTorch documentation, "CUDA semantics: asynchronous execution".
    """

    code = "HS003"
    name = "explicit-synchronize"
    title = "Remove explicit synchronization from the step"
    effort = Effort.ONE_LINE
    reason = EXPLICIT
    does = "The host synchronizes with the GPU"
    fix = Fix(
        "Remove the call. To time GPU work, use torch.cuda.Event and read it every N steps.",
        edits=[RemoveCall("torch.cuda.synchronize")],
        code="start.record(); train_step(); end.record()\n"
        "if step % 50 == 0:\n    end.synchronize(); print(start.elapsed_time(end))",
    )
    inference_fix = Fix(
        "Remove the call. To time GPU work, use CUDA events and read them after several batches.",
        edits=[RemoveCall("torch.cuda.synchronize")],
        code="start.record(); output = model(batch); end.record()",
    )

    def rows(self, facts: Facts) -> npt.NDArray[np.bool_]:
        """Without syncs that the host needs, as it reads what was copied to it, and without those of MM003."""
        return super().rows(facts) & ~facts.result_syncs & ~facts.emptying_syncs

    def advice(self, facts: Facts, rows: npt.NDArray[np.int64]) -> Fix:
        """Nothing depends on a wait for the whole device but the clock, in most scripts."""
        names = {name_of(facts, row) for row in facts.syncs.slice[rows].tolist()}
        if any(name.endswith("DeviceSynchronize") for name in names):
            return super().advice(facts, rows)
        return WAIT_LATER
