"""The plan: which fixes to make, in which order, and what each saves given the fixes above it.

Savings overlap or depend on each other, so what fixes save on their own cannot be added up. The plan is the set of
fixes that saves most in the replay, without those that add nothing to the others. Its order takes, again and again, the
fix that saves most after those above it; those of occasional costs, and searches for a cause, come last. The savings of
its rows add up, and the first row saves on its own what it states.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import combinations

from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.facts import Facts
from traceopt.result.finding import Confidence, impact_of_share, sure_of, value_order
from traceopt.result.words.effort_and_risk import Risk
from traceopt.result.words.message import ms
from traceopt.result.words.rounding import us
from traceopt.rules.savings.joint import JointSavings
from traceopt.rules.savings.known_error import known_range
from traceopt.rules.savings.potential import potentials_ns
from traceopt.rules.savings.price import Priced

MAX_ROWS = 6
MOST_CANDIDATES = 8  # the largest, whose sets are replayed
MIN_PLAN_SHARE = 0.03  # of the step: if fixes do not save as much, there is no plan
MIN_ROW_SHARE = 0.01  # of the step: the fixes left out would add no more to the plan than this
# Of the larger saving: of two fixes this close, the surer, clearer, safer and simpler one goes first. The first row is
# what people begin with, and predictions are not more exact (docs/accuracy.md); others this close only look the same.
CLOSE_TO_FIRST, CLOSE_SHARE = 0.25, 0.02
GUESS = 0.5  # of its saving: what a fix is worth that saves this or nothing
SAME_RANGE = 0.01  # of a saving: a fix that saves as much in the plan as alone has the range that it has alone
NEEDS_SHARE = 0.5  # of its saving in the plan: a fix that saves less on its own needs the fixes above it
UNLOCKED = 1.25  # times its saving alone: a fix that gives more after others says so
NEGLIGIBLE_SHARE = 0.001  # of the step; no fix is worth it

_CONFIDENCE: dict[Confidence, int] = {"high": 0, "medium": 1, "low": 2}


class Planned(Struct, frozen=True):
    """One row of the plan. Savings are ns per step; `needs` are the rows, from 1, without which it saves little.
    `capped`: the replay saves more than the measured costs allow.
    """

    fix: Priced
    alone_ns: float
    saving_ns: float
    low_ns: float
    high_ns: float
    needs: tuple[int, ...]
    capped: bool


class Plan(Struct, frozen=True, dict=True):
    """The rows in order. Empty if no fix is worth it, or if the trace does not show the times of the run."""

    rows: list[Planned]
    savings: JointSavings

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
    """The fixes that save most together, in order.

    If the replay is not trusted, what several fixes save together is not known, so the plan has one row at most.
    """
    savings = JointSavings(facts)
    costs = [(fix, fix.price.cost_ns) for fix in priced if fix.price is not None]
    worthwhile = [(fix, cost_ns) for fix, cost_ns in costs if cost_ns >= NEGLIGIBLE_SHARE * savings.step_ns]
    candidates = [fix for fix, _ in sorted(worthwhile, key=lambda pair: -pair[1])[:MOST_CANDIDATES]]
    if not candidates or facts.quality.sampled_share is not None:
        return Plan([], savings)
    if facts.replay_trusted:
        fixes = _needed(best_choice(candidates, savings), savings)
    else:
        fixes = [next_fix(candidates, [], savings)]
    if savings.of(fixes) < MIN_PLAN_SHARE * savings.step_ns:
        return Plan([], savings)
    return Plan(rows_of(_ordered(fixes, savings), savings), savings)


def best_choice(fixes: Sequence[Priced], savings: JointSavings) -> list[Priced]:
    """The fixes; of those with the same cause, the ones with which all save most. If others save about as much, those
    that are known, and then those that are no guesses, go first.
    """
    choices = {frozenset(map(id, choice)): choice for choice in _without_rivals(fixes)}
    largest = [choice for key, choice in choices.items() if not any(key < other for other in choices)]
    enough_ns = max(map(savings.of, largest)) - MIN_ROW_SHARE * savings.step_ns
    return max(
        (choice for choice in largest if savings.of(choice) >= enough_ns),
        key=lambda choice: (
            -sum(fix.finding.effort.is_unknown for fix in choice),
            -sum(map(_is_guess, choice)),
            savings.of(choice),
        ),
    )


def _without_rivals(fixes: Sequence[Priced]) -> Iterator[list[Priced]]:
    """Sets of the fixes in which no two have the same cause, every largest one among them."""
    rivals = next((pair for pair in combinations(fixes, 2) if pair[0].shares_cause_with(pair[1])), None)
    if rivals is None:
        yield list(fixes)
        return
    for rival in rivals:
        yield from _without_rivals(_others(fixes, rival))


def _needed(fixes: Sequence[Priced], savings: JointSavings) -> list[Priced]:
    """The fixes without those that the others can do without, and not more than MAX_ROWS."""
    left, enough_ns = list(fixes), savings.of(fixes) - MIN_ROW_SHARE * savings.step_ns
    while len(left) > 1:
        kept_ns = {id(fix): savings.of(_others(left, fix)) for fix in left}
        useless = [fix for fix in left if kept_ns[id(fix)] >= enough_ns]
        if useless:
            left = _others(left, max(useless, key=lambda fix: (*_doubts(fix), kept_ns[id(fix)], fix.finding.code)))
        elif len(left) > MAX_ROWS:
            left = _others(left, max(left, key=lambda fix: kept_ns[id(fix)]))
        else:
            break
    return left


def _ordered(fixes: Sequence[Priced], savings: JointSavings) -> list[Priced]:
    """The fixes, each the next one after those before it. Those of every step, whose cause is known, come first."""
    taken = list[Priced]()
    while len(taken) < len(fixes):
        left = [fix for fix in fixes if fix not in taken]
        taken.append(next_fix([fix for fix in left if not _comes_last(fix)] or left, taken, savings))
    return taken


def next_fix(fixes: Sequence[Priced], taken: Sequence[Priced], savings: JointSavings) -> Priced:
    """The fix that saves most after those taken; of those that save about as much, the surest, clearest, safest and
    simplest, but first the one without which the others save far less.

    A guess, which may save nothing, counts half: so it comes first only if it saves twice as much as a sure fix.
    """
    worth = {id(fix): _worth(fix, savings.after(fix, taken)) for fix in fixes}
    enough = (1 - (CLOSE_SHARE if taken else CLOSE_TO_FIRST)) * max(worth.values())
    close = [fix for fix in fixes if worth[id(fix)] >= enough]
    if len(close) > 1 and not taken:
        lost = {id(fix): _worth(fix, savings.of(fixes) - savings.of(_others(fixes, fix))) for fix in close}
        if (most := max(lost.values())) > 0:
            close = [fix for fix in close if lost[id(fix)] >= (1 - CLOSE_TO_FIRST) * most]
    return min(close, key=lambda fix: (*_doubts(fix), -worth[id(fix)], fix.finding.code))


def rows_of(fixes: Sequence[Priced], savings: JointSavings) -> list[Planned]:
    """The fixes as rows, in this order."""
    return [_row(fix, fixes[:place], savings) for place, fix in enumerate(fixes)]


def _row(fix: Priced, taken: Sequence[Priced], savings: JointSavings) -> Planned:
    alone_ns, gain_ns = savings.after(fix, []), savings.after(fix, taken)
    needs: tuple[int, ...] = ()
    if taken and alone_ns < NEEDS_SHARE * gain_ns:
        enough = [i for i, other in enumerate(taken, 1) if savings.after(fix, [other]) >= NEEDS_SHARE * gain_ns]
        needs = (enough[0],) if enough else tuple(range(1, len(taken) + 1))
    worst_ns, best_ns = savings.range_after(fix, taken)
    low_ns, high_ns = known_range(worst_ns, gain_ns, best_ns, savings.known_error)
    if fix.price is not None and abs(gain_ns - alone_ns) <= SAME_RANGE * alone_ns:
        low_ns, high_ns = min(low_ns, fix.price.low_ns), max(high_ns, fix.price.high_ns)
    most_ns = max(gain_ns, savings.most_after(fix, taken))
    replayed_ns = savings.by_replay([*taken, fix]) - savings.by_replay(taken)
    uncorrected_ns = savings.uncorrected([*taken, fix]) - savings.uncorrected(taken)
    capped = replayed_ns - uncorrected_ns > MIN_ROW_SHARE * savings.step_ns
    return Planned(fix, alone_ns, gain_ns, max(0.0, low_ns), min(high_ns, most_ns), needs, capped)


def _others(fixes: Sequence[Priced], fix: Priced) -> list[Priced]:
    return [other for other in fixes if other is not fix]


def _worth(fix: Priced, gain_ns: float) -> float:
    """What counts of a saving when fixes are put in order."""
    return (GUESS if _is_guess(fix) else 1.0) * gain_ns


def _is_guess(fix: Priced) -> bool:
    """Whether the fix may save nothing."""
    return fix.price is not None and fix.price.low_ns <= 0


def _doubts(fix: Priced) -> tuple[int, bool, bool, bool]:
    """What speaks against a fix that saves as much as another: it is less sure, clear, safe or simple."""
    finding = fix.finding
    effort, risky = finding.effort, finding.risk is not Risk.NONE
    return _CONFIDENCE[finding.confidence], effort.is_unknown, risky, not effort.is_simple


def _comes_last(fix: Priced) -> bool:
    """Whether the cost is not one of every step, or its cause is yet to be found."""
    return fix.occasional or fix.finding.effort.is_search


def in_order(priced: Sequence[Priced], plan: Plan, facts: Facts) -> list[Priced]:
    """The findings of the plan in its order, then the others, without those whose fix cannot shorten the step.

    Each states what it saves alone; its impact is the most that it can give: in the plan, or once the other limits of
    the step are gone.
    """
    most = dict(zip(map(id, priced), potentials_ns(priced, facts), strict=True))
    for row in plan.rows:
        most[id(row.fix)] = max(most[id(row.fix)], row.saving_ns)
    planned = {id(row.fix) for row in plan.rows}
    others = [fix for fix in priced if id(fix) not in planned and not _is_useless(fix, most[id(fix)], plan)]
    rated = [_rated(_left_out(fix, plan), most[id(fix)], plan) for fix in others]
    rated.sort(key=lambda fix: value_order(fix.finding))
    return [*(_rated(_as_sure(row), most[id(row.fix)], plan) for row in plan.rows), *rated]


def _as_sure(row: Planned) -> Priced:
    """The fix of a row, as sure as it is to save time after the fixes above."""
    finding = row.fix.finding
    return replace(row.fix, finding=replace(finding, confidence=sure_of(finding.confidence, row.low_ns)))


def _left_out(fix: Priced, plan: Plan) -> Priced:
    """The finding with what it saves after the plan, if the replay tells. If the plan treats its cause in another way:
    with how much less the plan saves if this fix takes the place of those.
    """
    if not plan.rows or not fix.changes or not plan.savings.replays or fix.price is None:
        return fix
    others = [planned for planned in plan.fixes if not fix.shares_cause_with(planned)]
    if len(others) < len(plan.fixes):
        lost_ns = plan.savings.of(plan.fixes) - plan.savings.of([*others, fix])
        finding = replace(fix.finding, instead_lost_us=us(max(0.0, lost_ns)))
    else:
        finding = replace(fix.finding, after_plan_us=us(plan.savings.after(fix, others)))
    return replace(fix, finding=finding)


def _is_useless(fix: Priced, most_ns: float, plan: Plan) -> bool:
    """Whether the fix was replayed and does not shorten the step, whatever else is fixed."""
    price = fix.price
    return price is not None and price.by_replay and max(price.high_ns, most_ns) < NEGLIGIBLE_SHARE * plan.step_ns


def _rated(fix: Priced, most_ns: float, plan: Plan) -> Priced:
    """The finding with its impact. `most_ns`: the most that its fix can save per step."""
    finding, saving = fix.finding, fix.finding.saving
    if fix.price is None or saving is None:
        return fix
    if most_ns > UNLOCKED * fix.price.est_ns and most_ns >= MIN_ROW_SHARE * plan.step_ns:
        basis = saving.basis + f" It saves up to {ms(most_ns)} once the other limits of the step are gone."
        finding = replace(finding, saving=replace(saving, basis=basis))
    return replace(fix, finding=replace(finding, impact=impact_of_share(most_ns / plan.step_ns)))
