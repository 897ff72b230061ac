"""The top fixes together. Their savings overlap, or wait for each other, so they are replayed at once, never summed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replayed_parts import busy_names, labels_of, limit_of, parts_of
from traceopt.result.document import Combined
from traceopt.result.rows import BreakdownPart
from traceopt.rules.savings.price import Priced, independent

TOP = 3
MOST = 0.95  # of the step; something always remains
UNEXPLAINED = 0.05  # of the step that is left: the part by which the replay may miss the estimate and still explain it


def combine(priced: Sequence[Priced], facts: Facts) -> Combined | None:
    """None when no finding saves 3 % of the step or more, or when together they give back nothing that is sure; of a
    sampled file too, whose times are not the step's.

    Where the replay is not trusted, or nothing is known of what the fixes change, the largest one alone counts.
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
    saving = min(max(saving, *(s.low_us for s in savings)), sum(s.est_us for s in savings), MOST * step)
    if saving <= 0:
        return None
    left = step - saving
    explained = abs(saving - replayed) <= UNEXPLAINED * left
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
    """The replayed parts, which are of the mean step, as those of a step of `us`."""
    total = sum(parts.values())
    return [
        BreakdownPart(name, labels[name], name in busy, round(ns / total * us, 3), round(ns / total, 6), None)
        for name, ns in parts.items()
        if ns > 0
    ]
