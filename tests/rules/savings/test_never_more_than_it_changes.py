"""No fix saves more, even at best, than the time of the work that it changes, but for the known error of predictions:
over all rules and traces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from support.traces import FILES, GENERATED, AnalyzedTrace, over

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import RemoveHost, ScaleWork
from traceopt.rules.savings.known_error import GAIN_ERROR
from traceopt.rules.savings.starvation import launched_ns

if TYPE_CHECKING:
    from traceopt.rules.savings.price import Priced

SLACK = 1.02  # the replayed step differs from the measured one


def changed_ns(one: Priced, facts: Facts) -> float | None:
    """Time per step that the best changes take away; None if they do something else."""
    if not one.best or not all(isinstance(change, ScaleWork | RemoveHost) for change in one.best):
        return None
    total = 0.0
    for change in one.best:
        if isinstance(change, RemoveHost):
            total += change.share * max(facts.steps.host_mean_ns(change.area), facts.steps.mean_ns(change.area))
        elif isinstance(change, ScaleWork):
            gone = change.work * np.maximum(1 - np.broadcast_to(change.factor, change.work.shape), 0.0)
            total += max(float((facts.gpu.in_window * gone).sum()) / facts.steps.count, launched_ns(facts, gone))
    return total


@over(GENERATED, FILES)
def test_of_every_trace(trace: AnalyzedTrace) -> None:
    for one in trace.outcome.priced:
        most_ns, saving = changed_ns(one, trace.facts), one.finding.saving
        if most_ns is not None and saving is not None:
            assert saving.est_us * 1e3 <= SLACK * most_ns + 1e3, (one.finding.code, saving, most_ns)
            assert saving.high_us * 1e3 <= (1 + GAIN_ERROR) * SLACK * most_ns + 1e3, (one.finding.code, saving, most_ns)
