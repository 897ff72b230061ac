"""The plan: which fixes to make, in which order, and what each saves given the fixes above it.

Savings overlap or depend on each other, so what fixes save on their own cannot be added up. The plan takes, again and
again, the fix that shortens the replayed step most after those already taken; those of occasional costs, and searches
for a cause, come last. The savings of its rows add up, and the first row saves on its own what it states.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.facts import Facts
from traceopt.result.finding import Confidence, impact_of_share, value_order
from traceopt.result.words.effort_and_risk import Risk
from traceopt.result.words.message import ms
from traceopt.result.words.rounding import us
from traceopt.rules.savings.known_error import known_range
from traceopt.rules.savings.potential import potentials_ns
from traceopt.rules.savings.price import Priced
from traceopt.rules.savings.successive import SuccessiveSavings

MAX_ROWS = 6
MIN_FIRST_SHARE = 0.03  # of the step: if fixes do not save as much, there is no plan
MIN_ROW_SHARE = 0.01  # of the step: a fix that adds less after the others is not in the plan
# Of the larger saving: predictions are not more exact than this (docs/accuracy.md), so of two fixes this close, the
# surer, clearer, safer and simpler one goes first.
CLOSE_SHARE = 0.25
GUESS = 0.5  # of its saving: what a fix is worth that saves this or nothing
LARGER = 2.0  # times what a fix saves alone: a fix of the same cause that saves so much goes before it
SAME_RANGE = 0.01  # of a saving: a fix that saves as much in the plan as alone has the range that it has alone
SAME_SHARE = 0.1  # of a saving: fixes without which the others save about as much are not needed
NEEDS_SHARE = 0.5  # of its saving in the plan: a fix that saves less on its own needs the fixes above it
UNLOCKED = 1.25  # times its saving alone: a fix that gives more after others says so
NEGLIGIBLE_SHARE = 0.001  # of the step; no fix is worth it

_CONFIDENCE: dict[Confidence, int] = {"high": 0, "medium": 1, "low": 2}


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
    savings: SuccessiveSavings

    @cached_property
    def saving_ns(self) -> float:
        return sum(row.saving_ns for row in self.rows)

    @property
    def step_ns(self) -> float:
        return self.savings.step_ns

    @property
    def fixes(self) -> list[Priced]:
        return [row.fix for row in self.rows]


def make_plan(priced: Iterable[Priced], facts: Facts) -> Plan:
    """The fixes in the order in which each saves most after those above it.

    If the replay is not trusted, what several fixes save together is not known, so the plan has one row at most.
    """
    savings, rows, wanted = SuccessiveSavings(facts), list[Planned](), list[Priced]()
    if facts.quality.sampled_share is not None:
        return Plan([], savings)
    left = [one for one in priced if one.price is not None]
    alone = {id(one): savings.of(one, []) for one in left}
    most = MAX_ROWS if facts.replay_trusted else 1
    while left and len(rows) < most:
        taken = [row.fix for row in rows]
        least = (MIN_ROW_SHARE if rows else MIN_FIRST_SHARE) * savings.step_ns
        candidates = (
            [one for one in left if not one.occasional and not one.finding.effort.is_search] if not wanted else left
        )
        gains = _gains(candidates, taken, savings)
        if max(gains.values(), default=0.0) < least:
            candidates, gains = left, _gains(left, taken, savings)
        if not wanted and max(gains.values()) < least:
            wanted = _only_together(left, taken, savings) if facts.replay_trusted else []
            if savings.together(wanted, taken) < max(least, MIN_FIRST_SHARE * savings.step_ns):
                break
        fix = next_fix(wanted or candidates, gains, alone)
        if taken and not wanted:
            fix = _easy_before(fix, candidates, taken, savings)
        rows.append(_row(fix, alone[id(fix)], taken, savings))
        wanted = [other for other in wanted if other is not fix]
        left = [other for other in left if other is not fix and not other.shares_cause_with(fix)]
    return Plan(rows, savings)


def _gains(left: Sequence[Priced], taken: Sequence[Priced], savings: SuccessiveSavings) -> dict[int, float]:
    """What each fix saves after those taken, by id. A fix that cannot come close to the best is not replayed."""
    gains: dict[int, float] = {}
    best = 0.0
    for one in sorted(left, key=_most_ns, reverse=True):
        gains[id(one)] = savings.of(one, taken) if _most_ns(one) >= (1 - CLOSE_SHARE) * best else 0.0
        best = max(best, _worth(one, gains[id(one)]))
    return gains


def _most_ns(one: Priced) -> float:
    """What a fix can save with any others, ns per step."""
    if one.price is None:
        return 0.0
    return one.price.bounds_ns[1] if one.changes else one.price.est_ns


def next_fix(candidates: Sequence[Priced], gains: Mapping[int, float], alone: Mapping[int, float]) -> Priced:
    """The fix that saves most; of those close to it, the surest, clearest, safest and simplest.

    A guess, which may save nothing, counts half: so it comes first only if it saves twice as much as a sure fix.

    Fixes may be close only because the fixes taken hide what they save. So of two that treat the same cause, the one
    that alone saves far more stands for both.
    """
    worth = {id(one): _worth(one, gains[id(one)]) for one in candidates}
    best = max(worth.values())
    close = [one for one in candidates if worth[id(one)] >= (1 - CLOSE_SHARE) * best]

    def preference(one: Priced) -> tuple[int, bool, bool, bool, float, float, str]:
        finding = one.finding
        low_ns = one.price.low_ns if one.price is not None else 0
        effort, risky = finding.effort, finding.risk is not Risk.NONE
        return (
            *(_CONFIDENCE[finding.confidence], effort.is_unknown, risky, not effort.is_simple),
            *(-worth[id(one)], -low_ns, finding.code),
        )

    chosen = min(close, key=preference)
    larger = [one for one in close if one.shares_cause_with(chosen) and alone[id(one)] >= LARGER * alone[id(chosen)]]
    return max(larger, key=lambda one: alone[id(one)], default=chosen)


def _worth(one: Priced, gain_ns: float) -> float:
    """What counts of a saving when fixes are put in order."""
    guess = one.finding.confidence == "low" and one.price is not None and one.price.low_ns == 0
    return (GUESS if guess else 1.0) * gain_ns


def _easy_before(fix: Priced, left: Sequence[Priced], taken: Sequence[Priced], savings: SuccessiveSavings) -> Priced:
    """A sure and simple fix that `fix` would hide, if `fix` saves about as much after it; else `fix`."""
    gain_ns = savings.of(fix, taken)
    for one in sorted((one for one in left if _is_easy(one) and not _is_easy(fix)), key=_most_ns, reverse=True):
        own_ns = savings.of(one, taken)
        if (
            own_ns >= MIN_FIRST_SHARE * savings.step_ns
            and savings.of(one, [*taken, fix]) < NEEDS_SHARE * own_ns
            and savings.of(fix, [*taken, one]) >= (1 - SAME_SHARE) * gain_ns
        ):
            return one
    return fix


def _is_easy(one: Priced) -> bool:
    """Whether the saving was measured, nothing can go wrong, and the fix is a line or two."""
    finding = one.finding
    return finding.confidence == "high" and finding.risk is Risk.NONE and finding.effort.is_simple


def _only_together(left: Sequence[Priced], taken: Sequence[Priced], savings: SuccessiveSavings) -> list[Priced]:
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


def _row(fix: Priced, alone_ns: float, taken: Sequence[Priced], savings: SuccessiveSavings) -> Planned:
    gain_ns = savings.of(fix, taken)
    needs: tuple[int, ...] = ()
    if taken and alone_ns < NEEDS_SHARE * gain_ns:
        enough = [i for i, other in enumerate(taken, 1) if savings.of(fix, [other]) >= NEEDS_SHARE * gain_ns]
        needs = (enough[0],) if enough else tuple(range(1, len(taken) + 1))
    low_ns, high_ns = known_range(savings.at_worst(fix, taken), gain_ns, savings.at_best(fix, taken))
    if fix.price is not None and abs(gain_ns - alone_ns) <= SAME_RANGE * alone_ns:
        low_ns, high_ns = min(low_ns, fix.price.low_ns), max(high_ns, fix.price.high_ns)
    most_ns = max(gain_ns, savings.most_of(fix, taken))
    return Planned(fix, alone_ns, gain_ns, max(0.0, low_ns), min(high_ns, most_ns), needs)


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
    rated = [_rated(_left_out(one, plan), most[id(one)], plan) for one in others]
    rated.sort(key=lambda one: value_order(one.finding))
    return [*(_rated(row.fix, most[id(row.fix)], plan) for row in plan.rows), *rated]


def _left_out(one: Priced, plan: Plan) -> Priced:
    """The finding with what it saves after the plan, if the replay tells."""
    if not plan.rows or not one.changes or not plan.savings.replayed or one.price is None:
        return one
    if any(one.shares_cause_with(planned) for planned in plan.fixes):
        return one  # the plan treats its cause in another way
    return replace(one, finding=replace(one.finding, after_plan_us=us(plan.savings.of(one, plan.fixes))))


def _is_useless(one: Priced, most_ns: float, plan: Plan) -> bool:
    """Whether the fix was replayed and does not shorten the step, whatever else is fixed."""
    price = one.price
    return price is not None and price.by_replay and max(price.high_ns, most_ns) < NEGLIGIBLE_SHARE * plan.step_ns


def _rated(one: Priced, most_ns: float, plan: Plan) -> Priced:
    """The finding with its impact. `most_ns`: the most that its fix can save per step."""
    finding, saving = one.finding, one.finding.saving
    if one.price is None or saving is None:
        return one
    if most_ns > UNLOCKED * one.price.est_ns and most_ns >= MIN_ROW_SHARE * plan.step_ns:
        basis = saving.basis + f" It saves up to {ms(most_ns)} once the other limits of the step are gone."
        finding = replace(finding, saving=replace(saving, basis=basis))
    return replace(one, finding=replace(finding, impact=impact_of_share(most_ns / plan.step_ns)))
