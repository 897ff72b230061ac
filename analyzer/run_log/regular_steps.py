"""Steps of a whole run that are long at a regular interval, as those that also sample from the model."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.run_log.step_ledger import Ledger
from traceopt.analyzer.timeline.steps import usual_interval

LONG = 1.5  # a long step as a multiple of the median
MIN_COUNT = 5
MIN_REGULAR = 0.8  # of the distances between long steps that are the same
MIN_INTERVAL = 3  # with every second step long, none is usual


class RegularSteps(Struct, frozen=True):
    """Every `every` steps, one takes `long_ns` instead of `usual_ns` (means). `excess_share` is what they take longer,
    as a share of the time of all steps.
    """

    every: int
    count: int
    long_ns: float
    usual_ns: float
    excess_share: float


def find_regular_steps(ledger: Ledger) -> RegularSteps | None:
    """Judges the steps without a profiler. Evaluations, saves, waits for data and garbage collection do not count."""
    steps, own_ns = ledger.usual, ledger.other_ns[ledger.usual]
    if len(steps) < MIN_COUNT * MIN_INTERVAL:
        return None
    is_long = own_ns >= LONG * max(1.0, median(own_ns))
    every, regular = usual_interval(steps[is_long])
    count = int(np.count_nonzero(is_long))
    if count < MIN_COUNT or every < MIN_INTERVAL or regular < MIN_REGULAR:
        return None
    long_ns, usual_ns = float(own_ns[is_long].mean()), float(own_ns[~is_long].mean())
    return RegularSteps(
        every, count, long_ns, usual_ns, count * (long_ns - usual_ns) / float(ledger.step_ns[steps].sum())
    )
