"""The plan as the document holds it: its rows, what all of them save together, and the step that they leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from traceopt.analyzer.attribution.limits import clear_limit
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import Change
from traceopt.analyzer.replay.replayed import Replayed
from traceopt.analyzer.vocabulary.causes.cause import Cause
from traceopt.analyzer.vocabulary.causes.table import CAUSE_OF_KEY, DISPATCH, LAUNCH
from traceopt.result.document import BeforeAndAfter, Combined
from traceopt.result.finding import Finding
from traceopt.result.sections.work_rows import BreakdownPart, PlanRow
from traceopt.result.words.rounding import us
from traceopt.rules.fixes.same_edit import same_edit
from traceopt.rules.plan import Plan
from traceopt.rules.savings.known_error import MAX_SAVED_SHARE
from traceopt.rules.savings.potential import treated_cause
from traceopt.rules.savings.price import Priced

UNEXPLAINED_SHARE = 0.05  # of the step after the fixes: largest gap between the plan and the parts that are left


def document_rows(plan: Plan, findings: Sequence[Finding]) -> list[PlanRow]:
    """The plan as the result document holds it. `findings`: those of its rows, with their ids."""
    rows = list[PlanRow]()
    for place, (row, finding) in enumerate(zip(plan.rows, findings, strict=True)):
        above = enumerate(findings[:place], 1)
        rows.append(
            PlanRow(
                code=row.fix.finding.code,
                finding=finding.id,
                alone_us=us(row.alone_ns),
                saving_us=us(row.saving_ns),
                low_us=us(row.low_ns),
                high_us=us(row.high_ns),
                step_us_after=us(plan.step_ns - plan.savings.of(plan.fixes[: place + 1])),
                needs=list(row.needs),
                same_edit=next((n for n, other in above if same_edit(other, finding)), None),
                capped=row.capped,
            )
        )
    return rows


def combine(plan: Plan, rows: Sequence[PlanRow], breakdown: Sequence[BreakdownPart], facts: Facts) -> Combined | None:
    """All fixes of the plan together, from its rows in the document; None without a plan. `breakdown`: of the step as
    it is.
    """
    if not rows:
        return None
    saved_us, left_us = us(plan.savings.of(plan.fixes)), rows[-1].step_us_after
    changes = plan.savings.changes(plan.fixes)
    left_of_parts = parts_after(breakdown, left_us, changes, plan.fixes, facts)
    limit = clear_limit(left_of_parts) if left_of_parts else None
    replayed = bool(changes) and facts.replay_trusted
    return Combined(
        codes=[row.code for row in rows],
        saving_us=saved_us,
        share=round(saved_us / (plan.step_ns / 1e3), 6),
        step_us_after=left_us,
        replay_error_share=round(facts.replay_error.share, 6) if replayed and facts.replay_error else None,
        limit_after=limit.key if limit is not None else None,
        breakdown_after=_rows(left_of_parts, left_us, facts),
        low_us=round(sum(row.low_us for row in rows), 3),
        high_us=round(min(sum(row.high_us for row in rows), MAX_SAVED_SHARE * plan.step_ns / 1e3), 3),
        unrecorded=_unrecorded(parts_of(breakdown), left_of_parts, left_us, facts),
    )


def parts_of(breakdown: Sequence[BreakdownPart]) -> dict[Cause, float]:
    """The parts of the breakdown, us."""
    return {CAUSE_OF_KEY[part.name]: part.us_per_step for part in breakdown}


def parts_after(
    breakdown: Sequence[BreakdownPart],
    left_us: float,
    changes: Sequence[Change],
    fixes: Sequence[Priced],
    facts: Facts,
) -> dict[Cause, float]:
    """The parts of the step after these changes, us; those of the fixes are among them. Empty if they are not known."""
    if not changes or not facts.replay_trusted:
        return {}
    return parts_left(parts_of(breakdown), left_us, facts.replayed, facts.replay(changes), facts, fixes)


def parts_left(
    now_us: Mapping[Cause, float],
    left_us: float,
    replayed: Replayed,
    changed: Replayed,
    facts: Facts,
    fixes: Sequence[Priced] = (),
) -> dict[Cause, float]:
    """The parts of the step after some changes, us; they sum to `left_us`. Empty if the replay, without and with the
    changes, does not explain it.

    Each part changes as in the replay. So a part that the changes do not touch stays as it is in the breakdown, which
    may be of other steps than the replayed ones. If the replay saves more than is stated, changes are undone: first
    those of parts that no fix treats, which only follow from the others.
    """
    step_us, to_measured = sum(now_us.values()), sum(now_us.values()) / replayed.step_ns  # us per ns of the replay
    was, becomes = (
        {cause: ns * to_measured for cause, ns in facts.parts_of(replay).items()} for replay in (replayed, changed)
    )
    apart = [cause for cause in becomes if cause.busy or not facts.has_gpu]  # not a set: its order differs by process
    left = {cause: max(0.0, now_us.get(cause, 0.0) + becomes[cause] - was.get(cause, 0.0)) for cause in apart}
    left |= _idle_left(
        {cause: now_us.get(cause, 0.0) for cause in {**becomes, **now_us} if cause not in apart}, was, becomes
    )
    total, explained_us = sum(left.values()), changed.step_ns * to_measured
    if abs(total - explained_us) > UNEXPLAINED_SHARE * explained_us or total - left_us > UNEXPLAINED_SHARE * left_us:
        return {}
    if total > left_us or step_us <= left_us:
        return {cause: us * left_us / total for cause, us in left.items()}
    return _undone(now_us, left, left_us, treated_parts(fixes, facts))


def treated_parts(fixes: Sequence[Priced], facts: Facts) -> set[Cause]:
    """The parts that fixes treat; of the host's ordinary work with a GPU, all."""
    treated = {cause for fix in fixes if (cause := treated_cause(facts, fix.changes)) is not None}
    return treated | set(DISPATCH) if LAUNCH in treated and facts.has_gpu else treated


def _undone(
    now_us: Mapping[Cause, float], left: Mapping[Cause, float], left_us: float, treated: set[Cause]
) -> dict[Cause, float]:
    """The parts with so much less of the changes that they sum to `left_us`."""
    left = dict(left)
    untreated = [cause for cause, us in left.items() if cause not in treated and us < now_us.get(cause, 0.0)]
    for causes in (untreated, list(left)):
        changed_us = {cause: now_us.get(cause, 0.0) - left[cause] for cause in causes}
        undone = (left_us - sum(left.values())) / (sum(changed_us.values()) or 1.0)
        left |= {cause: left[cause] + min(1.0, undone) * us for cause, us in changed_us.items()}
    return left


def _idle_left(
    now_us: Mapping[Cause, float], was: Mapping[Cause, float], becomes: Mapping[Cause, float]
) -> dict[Cause, float]:
    """The causes of idle time after the changes, us; their sum changes as in the replay. The replay may give some of it
    other causes than the breakdown does: then of what a cause has more in the breakdown as much is left as of what
    others have more in the replay.
    """
    kept = {cause: min(1.0, becomes.get(cause, 0.0) / was[cause]) if was.get(cause) else 1.0 for cause in now_us}
    others = {cause: max(0.0, was.get(cause, 0.0) - amount) for cause, amount in now_us.items()}
    others_us = sum(others.values())
    of_others = sum(amount * kept[cause] for cause, amount in others.items()) / others_us if others_us else 1.0
    left, lost = dict[Cause, float](), dict[Cause, float]()
    for cause, amount in now_us.items():
        same = min(amount, was.get(cause, 0.0))
        lost[cause] = same * (1 - kept[cause]) + (amount - same) * (1 - of_others)
        left[cause] = amount - lost[cause] + max(0.0, becomes.get(cause, 0.0) - was.get(cause, 0.0))
    left_us = sum(left.values())
    wanted_us = max(
        0.0, sum(amount + becomes.get(cause, 0.0) - was.get(cause, 0.0) for cause, amount in now_us.items())
    )
    if left_us > wanted_us:
        return {cause: amount * wanted_us / left_us for cause, amount in left.items()}
    share = (wanted_us - left_us) / (sum(lost.values()) or 1.0)
    return {cause: amount + share * lost[cause] for cause, amount in left.items()}


def _unrecorded(
    now_us: Mapping[Cause, float], left_of_parts: Mapping[Cause, float], left_us: float, facts: Facts
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
        busy_us = sum(us for part, us in now_us.items() if part.busy)
        busy_after_us = sum(us for part, us in left_of_parts.items() if part.busy)
    if busy_us >= min(bare_us, step_us):
        return None
    left = (bare_us - busy_us) / (step_us - busy_us)
    return BeforeAndAfter(round(bare_us, 3), round(busy_after_us + left * (left_us - busy_after_us), 3))


def _rows(left_of_parts: Mapping[Cause, float], left_us: float, facts: Facts) -> list[BreakdownPart]:
    return [
        BreakdownPart(part.key, facts.label(part), part.busy, round(us, 3), round(us / left_us, 6), None)
        for part, us in left_of_parts.items()
        if us > 0
    ]
