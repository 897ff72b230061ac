"""The plan: which fixes to make, in which order, and what each saves given the fixes above it.

Savings overlap or depend on each other, so what fixes save on their own cannot be added up. The plan takes, again and
again, the fix that shortens the replayed step most after those already taken; those of occasional costs come last. The
savings of its rows add up, and the
first row saves on its own what it states.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import Change
from traceopt.analyzer.replayed_parts import busy_names, clear_limit, labels_of, parts_of
from traceopt.result.document import Combined
from traceopt.result.finding import Confidence, Finding, impact_of_share, value_order
from traceopt.result.quantities import ms
from traceopt.result.rows import BreakdownPart, PlanRow
from traceopt.rules.savings.potential import potentials_ns
from traceopt.rules.savings.price import Priced

MAX_ROWS = 6
MIN_FIRST_SHARE = 0.03  # of the step: if fixes do not save as much, there is no plan
MIN_ROW_SHARE = 0.01  # of the step: a fix that adds less after the others is not in the plan
# Of the larger saving: predictions are not more exact than this (docs/accuracy.md), so of two fixes this close, the
# surer, clearer, safer and simpler one goes first.
CLOSE_SHARE = 0.25
LARGER = 2.0  # times what a fix saves alone: a fix of the same cause that saves so much goes before it
SAME_SHARE = 0.1  # of a saving: fixes without which the others save about as much are not needed
NEEDS_SHARE = 0.5  # of its saving in the plan: a fix that saves less on its own needs the fixes above it
UNLOCKED = 1.25  # times its saving alone: a fix that gives more after others says so
NEGLIGIBLE_SHARE = 0.001  # of the step; no fix is worth it
MAX_SAVED_SHARE = 0.95  # of the step; something always remains
UNEXPLAINED_SHARE = 0.05  # of the step after the fixes: largest gap between the replay and the plan

_CONFIDENCE: dict[Confidence, int] = {"high": 0, "medium": 1, "low": 2}
_NO_RISK = "None known"
_SIMPLE = ("One ", "An ", "Two ")  # how a rule's `effort` begins if the fix is a line or two
_UNKNOWN_EFFORT = ("Depends ", "Some investigation")  # how it begins if the fix has yet to be found


class Planned(Struct, frozen=True):
    """One row of the plan. Savings are ns per step; `needs` are the rows, from 1, without which it saves little."""

    fix: Priced
    alone_ns: float
    saving_ns: float
    low_ns: float
    high_ns: float
    needs: tuple[int, ...]


class Plan(Struct, frozen=True, dict=True):
    """The rows in order. Empty if no fix is worth it, or if the trace does not show the times of the run."""

    rows: list[Planned]
    step_ns: float

    @cached_property
    def saving_ns(self) -> float:
        return sum(row.saving_ns for row in self.rows)

    @property
    def fixes(self) -> list[Priced]:
        return [row.fix for row in self.rows]


class _Savings:
    """What fixes save given others, ns per step. Each set of fixes is replayed once."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._shares: dict[frozenset[int], float] = {}

    def _left_ns(self, fixes: Sequence[Priced]) -> float:
        """The step after the changes of the fixes."""
        key = frozenset(id(fix) for fix in fixes if fix.changes)
        if key not in self._shares:
            changes = [change for fix in fixes for change in fix.changes]
            self._shares[key] = self._share_left(changes) if changes else 1.0
        return max(self._facts.step_ns * self._shares[key], self._least_ns(fixes))

    def _least_ns(self, fixes: Sequence[Priced]) -> float:
        """The shortest step with these fixes."""
        least_ns = max((fix.price.least_step_ns for fix in fixes if fix.price is not None), default=0.0)
        return min(least_ns, self._facts.step_ns)

    def _share_left(self, changes: Sequence[Change]) -> float:
        return self._facts.replay(changes).step_ns / self._facts.replayed.step_ns

    def of(self, fix: Priced, given: Sequence[Priced]) -> float:
        """What a fix saves after others: at most what was measured of it."""
        found = fix.finding.saving
        if found is None or fix.price is None or not fix.changes or not self.replayed:
            return found.est_us * 1e3 if found is not None else 0.0
        gain = self._left_ns(given) - self._left_ns([*given, fix])
        return max(0.0, min(gain, fix.price.bounds_ns[1]))

    def together(self, fixes: Sequence[Priced], given: Sequence[Priced]) -> float:
        """What replayed fixes save together after others."""
        return self._left_ns(given) - self._left_ns([*given, *fixes])

    def at_best(self, fix: Priced, given: Sequence[Priced]) -> float:
        """What a fix saves at best after others."""
        found = fix.finding.saving
        if found is None or fix.price is None or not fix.changes or not self.replayed:
            return found.high_us * 1e3 if found is not None else 0.0
        changes = [change for one in given for change in one.changes]
        left_ns = self._share_left([*changes, *fix.best]) * self._facts.step_ns
        return min(self._left_ns(given) - max(left_ns, self._least_ns(given)), fix.price.bounds_ns[2])

    @property
    def replayed(self) -> bool:
        return self._facts.replay_error is not None


def make_plan(priced: Iterable[Priced], facts: Facts) -> Plan:
    """The fixes in the order in which each saves most after those above it.

    If the replay is not trusted, what several fixes save together is not known, so the plan has one row at most.
    """
    if facts.quality.sampled_share is not None:
        return Plan([], facts.step_ns)
    savings = _Savings(facts)
    left = [one for one in priced if one.finding.saving is not None]
    alone = {id(one): savings.of(one, []) for one in left}
    step_ns, rows, wanted = facts.step_ns, list[Planned](), list[Priced]()
    while left and len(rows) < (MAX_ROWS if facts.replay_trusted else 1):
        taken = [row.fix for row in rows]
        remaining = MAX_SAVED_SHARE * step_ns - sum(row.saving_ns for row in rows)
        least = (MIN_ROW_SHARE if rows else MIN_FIRST_SHARE) * step_ns
        candidates = [one for one in left if not one.occasional] if not wanted else left
        gains = _gains(candidates, taken, savings)
        if max(gains.values(), default=0.0) < least:
            candidates, gains = left, _gains(left, taken, savings)
        if not wanted and min(max(gains.values()), remaining) < least:
            wanted = _only_together(left, taken, savings) if facts.replay_trusted else []
            if savings.together(wanted, taken) < max(least, MIN_FIRST_SHARE * step_ns):
                break
        fix = next_fix(wanted or candidates, gains, alone)
        gain = min(gains[id(fix)], remaining)
        rows.append(_row(fix, gain, alone[id(fix)], taken, savings))
        wanted = [one for one in wanted if one is not fix]
        left = [one for one in left if one is not fix and not one.shares_cause_with(fix)]
    return Plan(rows, step_ns)


def _gains(left: Sequence[Priced], taken: Sequence[Priced], savings: _Savings) -> dict[int, float]:
    """What each fix saves after those taken, by id. A fix that cannot come close to the best is not replayed."""
    gains: dict[int, float] = {}
    best = 0.0
    for one in sorted(left, key=_most_ns, reverse=True):
        gains[id(one)] = savings.of(one, taken) if _most_ns(one) >= (1 - CLOSE_SHARE) * best else 0.0
        best = max(best, gains[id(one)])
    return gains


def _most_ns(one: Priced) -> float:
    """What a fix can save with any others, ns per step."""
    if one.price is not None and one.changes:
        return one.price.bounds_ns[1]
    return one.finding.saving.est_us * 1e3 if one.finding.saving is not None else 0.0


def next_fix(candidates: Sequence[Priced], gains: Mapping[int, float], alone: Mapping[int, float]) -> Priced:
    """The fix that saves most; of those close to it, the surest, clearest, safest and simplest.

    Fixes may be close only because the fixes taken hide what they save. So of two that treat the same cause, the one
    that alone saves far more stands for both.
    """
    best = max(gains[id(one)] for one in candidates)
    close = [one for one in candidates if gains[id(one)] >= (1 - CLOSE_SHARE) * best]

    def preference(one: Priced) -> tuple[int, bool, bool, bool, float, str]:
        finding = one.finding
        risky, simple = finding.risk != _NO_RISK, finding.effort.startswith(_SIMPLE)
        vague = finding.effort.startswith(_UNKNOWN_EFFORT)
        return _CONFIDENCE[finding.confidence], vague, risky, not simple, -gains[id(one)], finding.code

    chosen = min(close, key=preference)
    larger = [one for one in close if one.shares_cause_with(chosen) and alone[id(one)] >= LARGER * alone[id(chosen)]]
    return max(larger, key=lambda one: alone[id(one)], default=chosen)


def _only_together(left: Sequence[Priced], taken: Sequence[Priced], savings: _Savings) -> list[Priced]:
    """Fixes of which each alone saves little, because host and device limit the step alike: the fewest that save about
    as much as all of them.
    """
    chosen: list[Priced] = []
    for one in sorted(left, key=_most_ns, reverse=True):
        if one.changes and not any(one.shares_cause_with(other) for other in chosen):
            chosen.append(one)
    wanted = (1 - SAME_SHARE) * savings.together(chosen, taken)
    for one in sorted(chosen, key=_most_ns):
        rest = [other for other in chosen if other is not one]
        if savings.together(rest, taken) >= wanted:
            chosen = rest
    return chosen


def _row(fix: Priced, gain_ns: float, alone_ns: float, taken: Sequence[Priced], savings: _Savings) -> Planned:
    found = fix.finding.saving
    needs: tuple[int, ...] = ()
    if taken and alone_ns < NEEDS_SHARE * gain_ns:
        enough = [i for i, other in enumerate(taken, 1) if savings.of(fix, [other]) >= NEEDS_SHARE * gain_ns]
        needs = (enough[0],) if enough else tuple(range(1, len(taken) + 1))
    low_ns = min(found.low_us * 1e3, gain_ns) if found is not None else 0.0
    return Planned(fix, alone_ns, gain_ns, low_ns, max(gain_ns, savings.at_best(fix, taken)), needs)


def in_order(priced: Sequence[Priced], plan: Plan, facts: Facts) -> list[Priced]:
    """The findings of the plan in its order, then the others, without those whose fix cannot shorten the step.

    Each states what it saves alone; its impact is the most that it can give: in the plan, or once the other limits of
    the step are gone.
    """
    most = dict(zip(map(id, priced), potentials_ns(priced, facts), strict=True))
    for row in plan.rows:
        most[id(row.fix)] = max(most[id(row.fix)], row.saving_ns)
    planned = {id(row.fix) for row in plan.rows}
    others = [one for one in priced if id(one) not in planned and not _is_useless(one, most[id(one)], plan)]
    rated = [_rated(one, most[id(one)], plan) for one in others]
    rated.sort(key=lambda one: value_order(one.finding))
    return [*(_rated(row.fix, most[id(row.fix)], plan) for row in plan.rows), *rated]


def _is_useless(one: Priced, most_ns: float, plan: Plan) -> bool:
    """Whether the fix was replayed and does not shorten the step, whatever else is fixed."""
    found = one.finding.saving
    return (
        one.price is not None
        and found is not None
        and max(found.high_us * 1e3, most_ns) < NEGLIGIBLE_SHARE * plan.step_ns
    )


def _rated(one: Priced, most_ns: float, plan: Plan) -> Priced:
    """The finding with its impact. `most_ns`: the most that its fix can save per step."""
    finding, found = one.finding, one.finding.saving
    if found is None:
        return one
    if most_ns > UNLOCKED * found.est_us * 1e3 and most_ns >= MIN_ROW_SHARE * plan.step_ns:
        basis = f"{found.basis} It saves up to {ms(most_ns)} once the other limits of the step are gone."
        finding = replace(finding, saving=replace(found, basis=basis))
    return replace(one, finding=replace(finding, impact=impact_of_share(most_ns / plan.step_ns)))


def document_rows(plan: Plan) -> list[PlanRow]:
    """The plan as the result document holds it. The finding of each row has the row's place in the list of findings."""
    rows, step_us = [], plan.step_ns / 1e3
    for place, row in enumerate(plan.rows):
        saving_us = round(row.saving_ns / 1e3, 3)
        step_us -= saving_us
        rows.append(
            PlanRow(
                code=row.fix.finding.code,
                finding=place,
                alone_us=round(row.alone_ns / 1e3, 3),
                saving_us=saving_us,
                low_us=round(row.low_ns / 1e3, 3),
                high_us=round(row.high_ns / 1e3, 3),
                step_us_after=round(step_us, 3),
                needs=list(row.needs),
            )
        )
    return rows


def plan_first(findings: Sequence[Finding], planned: Sequence[Finding]) -> list[Finding]:
    """The findings of a plan in its order, then the others as they are. `planned`: as the rank of the plan has them."""
    left, first = list(findings), []
    for wanted in planned:
        same = [one for one in left if one.code == wanted.code]
        found = next((one for one in same if one.locations[:1] == wanted.locations[:1]), same[0])
        left.remove(found)
        first.append(found)
    return [*first, *left]


def combine(plan: Plan, facts: Facts) -> Combined | None:
    """All fixes of the plan together, from its rows; None without a plan."""
    if not plan.rows:
        return None
    rows = document_rows(plan)
    saved_us, left_us = round(sum(row.saving_us for row in rows), 3), rows[-1].step_us_after
    error = limit = None
    parts: Mapping[str, float] = {}
    changes: list[Change] = [change for fix in plan.fixes for change in fix.changes]
    if changes and facts.replay_trusted:
        after = facts.replay(changes)
        parts = parts_of(facts, after)
        limit = clear_limit(parts)
        error = round(facts.replay_error.share, 6) if facts.replay_error else None
        replayed_us = after.step_ns / facts.replayed.step_ns * plan.step_ns / 1e3
        if abs(replayed_us - left_us) > UNEXPLAINED_SHARE * left_us:
            parts, limit = {}, None
    return Combined(
        codes=[row.code for row in rows],
        saving_us=saved_us,
        share=round(saved_us / (plan.step_ns / 1e3), 6),
        step_us_after=left_us,
        replay_error_share=error,
        limit_after=limit,
        breakdown_after=_breakdown(parts, labels_of(facts), busy_names(facts), left_us),
        low_us=round(sum(row.low_us for row in rows), 3),
        high_us=round(min(sum(row.high_us for row in rows), MAX_SAVED_SHARE * plan.step_ns / 1e3), 3),
    )


def _breakdown(parts: Mapping[str, float], labels: Mapping[str, str], busy: Set[str], us: float) -> list[BreakdownPart]:
    """The replayed parts of the typical step, scaled to a step of `us` microseconds."""
    total = sum(parts.values())
    return [
        BreakdownPart(name, labels[name], name in busy, round(ns / total * us, 3), round(ns / total, 6), None)
        for name, ns in parts.items()
        if ns > 0
    ]
