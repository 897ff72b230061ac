"""All fixes of the plan together: what they save, and the step that they leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import Change
from traceopt.analyzer.replayed_parts import busy_names, clear_limit, labels_of, parts_of
from traceopt.result.document import BeforeAndAfter, Combined
from traceopt.result.rows import BreakdownPart, PlanRow
from traceopt.rules.plan import Plan
from traceopt.rules.savings.known_error import MAX_SAVED_SHARE

IDLE = "idle"
UNEXPLAINED_SHARE = 0.05  # of the step after the fixes: largest gap between the plan and the parts that are left


def combine(plan: Plan, rows: Sequence[PlanRow], breakdown: Sequence[BreakdownPart], facts: Facts) -> Combined | None:
    """All fixes of the plan together, from its rows in the document; None without a plan. `breakdown`: of the step as
    it is.
    """
    if not rows:
        return None
    saved_us, left_us = round(sum(row.saving_us for row in rows), 3), rows[-1].step_us_after
    changes = plan.savings.after(plan.fixes).changes
    now_us = {part.name: part.us_per_step for part in breakdown}
    replayed = bool(changes) and facts.replay_trusted
    left_of_parts = parts_left(now_us, left_us, changes, facts) if replayed else {}
    return Combined(
        codes=[row.code for row in rows],
        saving_us=saved_us,
        share=round(saved_us / (plan.step_ns / 1e3), 6),
        step_us_after=left_us,
        replay_error_share=round(facts.replay_error.share, 6) if replayed and facts.replay_error else None,
        limit_after=clear_limit(left_of_parts) if left_of_parts else None,
        breakdown_after=_rows(left_of_parts, left_us, facts),
        low_us=round(sum(row.low_us for row in rows), 3),
        high_us=round(min(sum(row.high_us for row in rows), MAX_SAVED_SHARE * plan.step_ns / 1e3), 3),
        unrecorded=_unrecorded(now_us, left_of_parts, left_us, facts),
    )


def parts_left(
    now_us: Mapping[str, float], left_us: float, changes: Sequence[Change], facts: Facts
) -> dict[str, float]:
    """The parts of the step after the changes, us; they sum to `left_us`. Empty if the replay does not explain it.

    Each part changes as in the replay. So a part that the fixes do not touch stays as it is in the breakdown, which
    may be of other steps than the replayed ones. Idle time is one part here, because the replay may give it other
    causes than the breakdown. What is left of it has the causes of the replayed step after the changes.
    """
    before, after = parts_of(facts, facts.replayed), parts_of(facts, facts.replay(changes))
    apart = busy_names(facts) if facts.has_gpu else after.keys()
    now, was, becomes = (_with_idle_as_one(parts, apart) for parts in (now_us, before, after))
    step_us, replayed_us = sum(now.values()), facts.replayed.step_ns / 1e3
    left = {
        name: max(0.0, now.get(name, 0.0) + (becomes[name] - was.get(name, 0.0)) / 1e3 * step_us / replayed_us)
        for name in becomes
    }
    total = sum(left.values())
    if abs(total - left_us) > UNEXPLAINED_SHARE * left_us:
        return {}
    if total > left_us or step_us <= left_us:
        left = {name: us * left_us / total for name, us in left.items()}
    else:
        undone = (left_us - total) / (step_us - total)  # of each change
        left = {name: us + undone * (now.get(name, 0.0) - us) for name, us in left.items()}
    idle_us = left.pop(IDLE)
    causes = after if becomes[IDLE] > 0 else now_us
    all_causes = sum(amount for name, amount in causes.items() if name not in apart)
    idle = {name: idle_us * amount / all_causes for name, amount in causes.items() if name not in apart and all_causes}
    return left | idle


def _with_idle_as_one(parts: Mapping[str, float], apart: Set[str]) -> dict[str, float]:
    """The parts to keep apart, and the sum of the others."""
    kept = {name: amount for name, amount in parts.items() if name in apart}
    return kept | {IDLE: sum(amount for name, amount in parts.items() if name not in apart)}


def _unrecorded(
    now_us: Mapping[str, float], left_of_parts: Mapping[str, float], left_us: float, facts: Facts
) -> BeforeAndAfter | None:
    """A step of the run without a profiler, and what the fixes leave of it.

    The profiler slows the host only, so what lasts longer in the recorded step is the time in which the GPU is idle. On
    a CPU everything does. None if it is not known how busy the GPU is after the fixes.
    """
    bare_ns = facts.captured.unrecorded_step_ns
    if bare_ns is None:
        return None
    bare_us, step_us = bare_ns / 1e3, facts.step_ns / 1e3
    busy_us = busy_after_us = 0.0
    if facts.has_gpu:
        if not left_of_parts:
            return None
        busy = busy_names(facts)
        busy_us = sum(us for name, us in now_us.items() if name in busy)
        busy_after_us = sum(us for name, us in left_of_parts.items() if name in busy)
    if busy_us >= min(bare_us, step_us):
        return None
    left = (bare_us - busy_us) / (step_us - busy_us)
    return BeforeAndAfter(round(bare_us, 3), round(busy_after_us + left * (left_us - busy_after_us), 3))


def _rows(left_of_parts: Mapping[str, float], left_us: float, facts: Facts) -> list[BreakdownPart]:
    labels, busy = labels_of(facts), busy_names(facts)
    return [
        BreakdownPart(name, labels[name], name in busy, round(us, 3), round(us / left_us, 6), None)
        for name, us in left_of_parts.items()
        if us > 0
    ]
