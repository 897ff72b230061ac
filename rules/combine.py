"""The combined saving of the top fixes. Savings overlap or depend on each other, so the fixes are replayed together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replayed_parts import busy_names, labels_of, limit_of, parts_of
from traceopt.result.document import Combined
from traceopt.result.rows import BreakdownPart
from traceopt.rules.savings.price import Priced, independent

TOP = 3
MAX_SAVED_SHARE = 0.95  # of the step; something always remains
UNEXPLAINED_SHARE = 0.05  # of the step after the fixes: largest gap between replay and estimate


def combine(priced: Sequence[Priced], facts: Facts) -> Combined | None:
    """None if no finding saves 3 % of the step or more, if the fixes together save nothing, or for a sampled file, in
    which step times are not real.

    If the replay is not trusted, or the replay changes of the fixes are unknown, only the largest saving counts.
    """
    top = independent(one for one in priced if one.finding.impact in ("high", "medium"))[:TOP]
    if not top or facts.quality.sampled_share is not None:
        return None
    step = facts.step_ns / 1e3
    changes = [change for one in top for change in one.changes]
    savings = [one.finding.saving for one in top if one.finding.saving]
    saving = max(s.est_us for s in savings)
    error = limit = None
    parts: Mapping[str, float] = {}
    replayed = 0.0
    if changes and facts.replay_trusted:
        after = facts.replay(changes)
        unknown = sum(one.finding.saving.est_us for one in top if one.finding.saving and not one.changes)
        replayed = step * (1 - after.step_ns / facts.replayed.step_ns)
        saving = replayed + unknown
        error = round(facts.replay_error.share, 6) if facts.replay_error else None
        parts = parts_of(facts, after)
        limit = limit_of(parts)
    saving = min(max(saving, *(s.low_us for s in savings)), sum(s.est_us for s in savings), MAX_SAVED_SHARE * step)
    if saving <= 0:
        return None
    left = step - saving
    explained = abs(saving - replayed) <= UNEXPLAINED_SHARE * left
    return Combined(
        codes=[one.finding.code for one in top],
        saving_us=round(saving, 3),
        share=round(saving / step, 6),
        step_us_after=round(left, 3),
        replay_error_share=error,
        limit_after=limit,
        breakdown_after=_breakdown(parts, labels_of(facts), busy_names(facts), left) if explained else [],
    )


def _breakdown(parts: Mapping[str, float], labels: Mapping[str, str], busy: Set[str], us: float) -> list[BreakdownPart]:
    """The replayed parts of the mean step, scaled to a step of `us` microseconds."""
    total = sum(parts.values())
    return [
        BreakdownPart(name, labels[name], name in busy, round(ns / total * us, 3), round(ns / total, 6), None)
        for name, ns in parts.items()
        if ns > 0
    ]
