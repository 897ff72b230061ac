"""LG002: reading a metric from the GPU for the log stalls the step."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceopt.rules import CallEvery, Facts, Fix, Risk
from traceopt.rules.bases.sync_rule import SyncRule


class MetricSync(SyncRule):
    """Measures syncs whose caller is a logging call or a function that reports metrics (`log_metrics`, `update_stats`,
    torchmetrics), where they cost time: the GPU is idle during the wait and until the queue is full again.

    Why it costs: only the log needs the value, but reading it stops the whole pipeline.

    How to fix: accumulate on the GPU and read at the logging interval.

        self.loss_sum += loss.detach()
        if step % 50 == 0:
            writer.add_scalar("loss", self.loss_sum.item() / 50, step)
            self.loss_sum.zero_()

    When it is wrong: the rule recognizes the caller by its name. It would blame a function called `log_something` that
    the model needs. Sync time while the GPU is busy is not counted.

    Sources: PyTorch performance tuning guide; PyTorch Lightning documentation, "Avoid calling .item()".
    """

    code = "LG002"
    name = "metric-sync"
    title = "Read metrics only at the logging interval"
    family = "logging"
    risk = Risk.LATER
    risk_note = "Metrics arrive later"
    requires = ("gpu", "launches", "stacks")
    reason = ""
    does = "A metric is read from the GPU for the log"
    fix = Fix(
        "Accumulate the metric on the GPU and read it only when you log it, every N steps.",
        edits=[CallEvery("log", 50)],
        code="loss_sum += loss.detach()\nif step % 50 == 0:\n    log(loss_sum.item() / 50)\n    loss_sum.zero_()",
    )

    inference_fix = Fix(
        "Accumulate the metric on the GPU and read it only when you log it, every N batches.",
        "correct += (logits.argmax(-1) == labels).sum()\nif batch % 50 == 0:\n    log(correct.item() / seen)",
    )

    def rows(self, facts: Facts) -> npt.NDArray[np.bool_]:
        return facts.reporting_syncs
