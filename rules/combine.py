"""The top fixes together. Their savings overlap, or wait for each other, so they are replayed at once, never summed."""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.parts import limit_of, parts_of
from traceopt.analyzer.replay.whatif import replay
from traceopt.result import Combined
from traceopt.rules.finding import Finding, independent

TOP = 3
MOST = 0.95  # of the step; something always remains


def combine(findings: Sequence[Finding], facts: Facts) -> Combined | None:
    """None when no finding saves 3 % of the step or more, or when together they give back nothing that is sure.

    Where the replay is not trusted, or nothing is known of what the fixes change, the largest one alone counts.
    """
    top = independent(f for f in findings if f.impact in ("high", "medium"))[:TOP]
    if not top:
        return None
    step = facts.step_ns / 1e3
    changes = [change for finding in top for change in finding.changes]
    savings = [finding.saving for finding in top if finding.saving]
    saving = max(s.est_us for s in savings)
    error = limit = None
    if changes and facts.replay_trusted:
        after = replay(facts, changes)
        unknown = sum(f.saving.est_us for f in top if f.saving and not f.changes)
        saving = step * (1 - after.step_ns / facts.replayed.step_ns) + unknown
        error = round(facts.replay_error.share, 6) if facts.replay_error else None
        limit = limit_of(parts_of(facts, after))
    saving = min(max(saving, *(s.low_us for s in savings)), sum(s.est_us for s in savings), MOST * step)
    if saving <= 0:
        return None
    return Combined(
        codes=[f.code for f in top],
        saving_us=round(saving, 3),
        share=round(saving / step, 6),
        step_us_after=round(step - saving, 3),
        replay_error_share=error,
        limit_after=limit,
    )
