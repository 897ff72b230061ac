"""What rules share that judge the whole run by its ledger: costs that come now and then, spread over all steps."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.run_log.step_ledger import FEW, SETTLED, Ledger
from traceopt.analyzer.tables.schema import I8
from traceopt.result.finding import Saving
from traceopt.rules.savings.starvation import saving


def judged_steps(ledger: Ledger) -> I8:
    """Numbers of the steps to judge a run by: those without a profiler; all settled ones of a run that has few."""
    return (
        ledger.usual if len(ledger.usual) >= FEW else np.arange(min(SETTLED, len(ledger.step_ns)), len(ledger.step_ns))
    )


def mean_step_ns(ledger: Ledger) -> float:
    steps = judged_steps(ledger)
    return float(ledger.step_ns[steps].mean()) if len(steps) else 0.0


def host_limit_ns(facts: Facts, ledger: Ledger) -> float:
    """What the run's mean step takes beyond the GPU's own work: no fix of the host's side gives back more."""
    busy_ns = facts.gpu.busy.total / facts.steps.count if facts.has_gpu else 0.0
    return max(0.0, mean_step_ns(ledger) - busy_ns)


def whole_run_saving(facts: Facts, ledger: Ledger, low_ns: float, est_ns: float, high_ns: float, basis: str) -> Saving:
    """A cost of the host that the ledger shows, spread over the steps; beside a GPU bounded by what goes beyond it."""
    limit = host_limit_ns(facts, ledger)
    if facts.has_gpu and limit < high_ns:
        basis += " No more than the run's mean step takes beyond the GPU's own work."
    if limit < est_ns:  # then as sure as the estimate was
        low_ns *= limit / est_ns
    return saving(facts, low_ns, min(est_ns, limit), min(high_ns, limit), basis)
