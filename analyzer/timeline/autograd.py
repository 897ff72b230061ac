"""How many autograd nodes the operators of a step record."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.arrays.grouping import group_rows
from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.steps import Steps


def nodes_per_step(trace: Trace, steps: Steps) -> float:
    """Autograd nodes of a step, the median of the steps: the distinct sequence numbers of its forward operators, less
    the next free one that every operator reports.
    """
    ops = trace.ops
    rows = np.flatnonzero((ops.sequence >= 0) & (ops.forward_thread <= 0))
    step = steps.host_step_of(ops.start[rows])
    inside = step >= 0
    nodes, _ = group_rows(step[inside], ops.sequence[rows[inside]])
    counts = np.bincount(step[inside][nodes], minlength=steps.count)
    return float(max(0.0, median(counts) - 1))
