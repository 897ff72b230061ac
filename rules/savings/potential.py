"""What a fix can give at most: its saving once the other limits of the step are gone.

If host, compute and communication all limit the step, a change to only one of them saves little on its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from traceopt.analyzer.attribution.limits import grouped
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import Change, DropSync, MergeKernels, MoveToStream, RemoveLaunches, ScaleWork
from traceopt.analyzer.tables.schema import Mask
from traceopt.analyzer.vocabulary.causes.cause import Cause
from traceopt.analyzer.vocabulary.causes.table import COPIES, HOST_SYNC
from traceopt.rules.savings.price import Priced
from traceopt.rules.savings.pricing import on_host


def potentials_ns(findings: Sequence[Priced], facts: Facts) -> list[float]:
    """For each finding, what its fix saves per step once the findings about the other limits are fixed at best: at
    least what it saves alone, at most what was measured of it. 0 without a saving.
    """
    alone = [float(finding.price.est_ns) if finding.price is not None else 0.0 for finding in findings]
    if not facts.replay_trusted or facts.quality.sampled_share is not None:
        return alone
    limits = [side_of(finding, facts) for finding in findings]
    others = {
        limit: [
            change
            for fix in _independent(fix for fix, of in zip(findings, limits, strict=True) if of != limit)
            for change in fix.best
        ]
        for limit in set(limits)
    }
    left = {limit: facts.replay(changes).step_ns for limit, changes in others.items() if changes}
    out = []
    for fix, limit, saved_ns in zip(findings, limits, alone, strict=True):
        potential_ns = saved_ns
        if fix.price is not None and fix.changes and limit in left and fix.price.bounds_ns[1] > saved_ns:
            after = facts.replay([*others[limit], *fix.changes]).step_ns
            gain_ns = facts.step_ns * (left[limit] - after) / facts.replayed.step_ns
            potential_ns = max(saved_ns, fix.price.correction.factor * min(gain_ns, fix.price.bounds_ns[1]))
        out.append(potential_ns)
    return out


def side_of(fix: Priced, facts: Facts) -> str:
    """What the fix speeds up: the host, communication, or compute."""
    if on_host(fix):
        return "host"
    faster = [change.work & (change.factor < 1) for change in fix.changes if isinstance(change, ScaleWork)]
    only_communication = all(not (work & ~facts.gpu.is_communication).any() for work in faster)
    return "communication" if faster and only_communication else "compute"


def shortened_work(facts: Facts, changes: Iterable[Change]) -> Mask:
    """The device's work that some of the changes make shorter. Shape (len(gpu.work),)."""
    out = np.zeros(len(facts.gpu.work), bool)
    for change in changes:
        if isinstance(change, ScaleWork):
            out |= change.work & (np.asarray(change.factor) < 1)
        elif isinstance(change, MergeKernels):
            out |= change.group >= 0
        elif isinstance(change, RemoveLaunches):
            out |= change.work
    return out


def treated_cause(facts: Facts, changes: Sequence[Change]) -> Cause | None:
    """The part of the step that these changes treat: the one that they shorten most, dispatch grouped as in `grouped`.

    None if no change is known or nothing can be replayed.
    """
    if not changes or facts.replay_error is None:
        return None
    if facts.has_gpu and all(isinstance(change, DropSync) for change in changes):
        return HOST_SYNC  # whatever the host does meanwhile is hidden, but the wait is what goes
    if facts.has_gpu and all(isinstance(change, MoveToStream) for change in changes):
        return COPIES  # nothing else is moved: it may run while nothing is launched, and stay exposed in other places
    before, after = facts.parts_of(facts.replayed), facts.parts_of(facts.replay(changes))
    if facts.has_gpu:
        before, after = grouped(before), grouped(after)
    return max(before, key=lambda cause: before[cause] - after.get(cause, 0.0))


def _independent(found: Iterable[Priced]) -> list[Priced]:
    """Findings with a saving; only the first of those that share a cause."""
    chosen: list[Priced] = []
    for fix in found:
        if fix.price is not None and not any(fix.shares_cause_with(other) for other in chosen):
            chosen.append(fix)
    return chosen
