"""No fix saves more, even at best, than the time of the work that it changes, but for the known error of predictions:
over all rules and traces.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from support.traces import FILES, GENERATED, AnalyzedTrace, over

from traceopt.analyzer.arrays.intervals import Intervals
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import RemoveHost, RemoveLaunches, ScaleWork
from traceopt.rules.savings.known_error import known_error
from traceopt.rules.savings.price import Priced
from traceopt.rules.savings.pricing import area_of
from traceopt.rules.savings.starvation import launched_ns

SLACK = 1.02  # the replayed step differs from the measured one


def changed_ns(one: Priced, facts: Facts) -> float | None:
    """Time per step that the best changes take away; None if they do something else."""
    total = 0.0
    for change in one.best:
        if isinstance(change, RemoveHost):
            total += change.share * host_ns(facts, change.area)
        elif isinstance(change, ScaleWork):
            gone = np.maximum(1 - np.broadcast_to(change.factor, change.work.shape), 0.0)
            total += work_ns(facts, change.work * gone)
        elif isinstance(change, RemoveLaunches):
            launching = area_of(facts, facts.links.op_slice[change.work])
            total += work_ns(facts, change.work.astype(float)) + change.dispatch_share * host_ns(facts, launching)
        else:
            return None
    return total if one.best else None


def host_ns(facts: Facts, area: Intervals) -> float:
    """Time per step in the area: of the host's window or of the GPU's, whichever has more."""
    return max(facts.steps.host_mean_ns(area), facts.steps.mean_ns(area))


def work_ns(facts: Facts, gone: npt.NDArray[np.float64]) -> float:
    """GPU time per step that is gone. `gone`: the share of each row of the work."""
    return max(float((facts.gpu.in_window * gone).sum()) / facts.steps.count, launched_ns(facts, gone))


@over(GENERATED, FILES)
def test_of_every_trace(trace: AnalyzedTrace) -> None:
    for one in trace.outcome.priced:
        most_ns, saving = changed_ns(one, trace.facts), one.finding.saving
        if most_ns is not None and saving is not None:
            assert saving.est_us * 1e3 <= SLACK * most_ns + 1e3, (one.finding.code, saving, most_ns)
            wide = (1 + known_error(trace.facts.has_gpu)) * SLACK
            assert saving.high_us * 1e3 <= wide * most_ns + 1e3, (one.finding.code, saving)
