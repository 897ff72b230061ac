"""Savings judged over the whole run by its ledger: occasional costs, spread over all steps."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.run_log.step_ledger import FEW, SETTLED, Ledger
from traceopt.analyzer.tables.schema import I8
from traceopt.rules.savings.price import Price
from traceopt.rules.savings.starvation import saving


def judged_steps(ledger: Ledger) -> I8:
    """Indices of the steps to judge a run by: those without a profiler, or all settled steps if these are too few."""
    return (
        ledger.usual if len(ledger.usual) >= FEW else np.arange(min(SETTLED, len(ledger.step_ns)), len(ledger.step_ns))
    )


def mean_step_ns(ledger: Ledger) -> float:
    """The mean duration of the steps that a run is judged by, ns; 0 if there are none."""
    steps = judged_steps(ledger)
    return float(ledger.step_ns[steps].mean()) if len(steps) else 0.0


def mean_part_ns(ledger: Ledger, part_ns: I8) -> float:
    """What some of the steps spend on one thing, as a part of the mean step, ns: its share of the whole run without the
    first steps. So it is never longer than that step. `part_ns`: of each step, shape (steps,).
    """
    total_ns = float((ledger.step_ns + ledger.eval_ns)[SETTLED:].sum())
    return min(1.0, float(part_ns[SETTLED:].sum()) / max(1.0, total_ns)) * mean_step_ns(ledger)


def host_limit_ns(facts: Facts, ledger: Ledger) -> float:
    """How much the run's mean step exceeds the GPU's own work: no host-side fix saves more."""
    busy_ns = facts.gpu.busy.total / facts.steps.count if facts.has_gpu else 0.0
    return max(0.0, mean_step_ns(ledger) - busy_ns)


def whole_run_saving(facts: Facts, ledger: Ledger, low_ns: float, est_ns: float, high_ns: float, basis: str) -> Price:
    """A host cost from the ledger, spread over the steps; with a GPU, capped at the time beyond the GPU's own work.

    The cost is a part of the run's mean step. If that is longer than the recorded step, which the saving is a part of,
    the same part of the recorded step is saved.
    """
    limit = host_limit_ns(facts, ledger)
    if facts.has_gpu and limit < high_ns:
        basis += " Capped at how much the run's mean step exceeds the GPU's own work."
    if limit < est_ns:  # keep the ratio of the low end to the estimate
        low_ns *= limit / est_ns
    scale = min(1.0, facts.step_ns / max(1.0, mean_step_ns(ledger)))
    return saving(facts, scale * low_ns, scale * min(est_ns, limit), scale * min(high_ns, limit), basis)
