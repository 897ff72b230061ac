"""What fixes save together: the step replayed with all of their changes, each fix within what was measured of its cost.

The saving belongs to the set of fixes, in whatever order they are made. So no order of a plan saves more than another,
and whoever asks for the same fixes gets the same step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import Change
from traceopt.rules.savings.known_error import MAX_SAVED_SHARE, known_error
from traceopt.rules.savings.price import Price, Priced

EXACT = 0.01  # of a cost: a replay that saves no more than this beyond it agrees with it


class JointSavings:
    """What sets of fixes save, ns per step: at most what was measured of their costs. Each set is replayed once.

    The replay may find that a fix alone saves more than was measured of its cost. Such a fix counts with that cost, and
    the others with what they save without it.
    """

    def __init__(self, facts: Facts, also: Sequence[Change] = ()) -> None:
        """`also`: changes beside those of any fix, which have no measured cost."""
        self._facts = facts
        self._also = tuple(also)
        self._replayed_ns: dict[frozenset[int], float] = {}
        self._uncorrected_ns: dict[frozenset[int], float] = {}
        self._saved_ns: dict[frozenset[int], float] = {}

    @property
    def known_error(self) -> float:
        """No range of a saving is narrower than this share of it."""
        return known_error(self._facts.has_gpu)

    @property
    def step_ns(self) -> float:
        return self._facts.step_ns

    @cached_property
    def replays(self) -> bool:
        """Whether the trace can be replayed; if not, savings are added."""
        return self._facts.replay_error is not None

    def of(self, fixes: Sequence[Priced]) -> float:
        """What these fixes save together."""
        key = _key(fixes)
        if key not in self._saved_ns:
            self._saved_ns[key] = self._corrected(fixes)
        return self._saved_ns[key]

    def uncorrected(self, fixes: Sequence[Priced]) -> float:
        """The same without what earlier trials say."""
        key = _key(fixes)
        if key not in self._uncorrected_ns:
            self._uncorrected_ns[key] = self._within_costs(fixes)
        return self._uncorrected_ns[key]

    def by_replay(self, fixes: Sequence[Priced]) -> float:
        """What these fixes save together in the replay, even where that is more than was measured of their costs."""
        key = _key(fixes)
        if key not in self._replayed_ns:
            self._replayed_ns[key] = self._replayed(fixes)
        return self._replayed_ns[key]

    def changes(self, fixes: Sequence[Priced]) -> list[Change]:
        """What these fixes change in the replay, in an order that depends on nothing else."""
        ordered = sorted(fixes, key=lambda fix: (fix.finding.code, _price(fix).est_ns))
        return [*self._also, *(change for fix in ordered if self._is_replayed(fix) for change in fix.changes)]

    def after(self, fix: Priced, given: Sequence[Priced]) -> float:
        """What a fix saves after others."""
        return self.of([*given, fix]) - self.of(given)

    def range_after(self, fix: Priced, given: Sequence[Priced]) -> tuple[float, float]:
        """What a fix saves after others if it changes the least that is likely, and the most."""
        price = _price(fix)
        if not self._is_replayed(fix):
            return price.low_ns, price.high_ns
        before, before_ns = self.changes(given), self.by_replay(given)
        worst_ns, best_ns = (
            self._gain_ns([*before, *changes], [*given, fix]) - before_ns for changes in (price.worst, price.best)
        )
        expected_ns = self.uncorrected([*given, fix]) - self.uncorrected(given)
        ends_ns = min(worst_ns, price.bounds_ns[0]), expected_ns, min(best_ns, price.bounds_ns[2])
        low_ns, _, high_ns = price.correction.of(*ends_ns)
        return low_ns, high_ns

    def most_after(self, fix: Priced, given: Sequence[Priced]) -> float:
        """The most that any fix could save after others, but for what this one itself takes."""
        return self._most_ns([*given, fix]) - self.of(given)

    def _corrected(self, fixes: Sequence[Priced]) -> float:
        """Trials measured what a fix saves alone. That is corrected as far as the fix saves it beside the others."""
        saved_ns = self.uncorrected(fixes)
        more_ns = 0.0
        for fix in fixes:
            factor = _price(fix).correction.factor
            if factor != 1 and self._is_replayed(fix):
                alone_ns = self.uncorrected([fix]) - self.uncorrected([])
                last_ns = saved_ns - self.uncorrected([other for other in fixes if other is not fix])
                more_ns += (factor - 1) * max(0.0, min(alone_ns, last_ns))
        return min(saved_ns + more_ns, self._most_ns(fixes)) if more_ns else saved_ns

    def _within_costs(self, fixes: Sequence[Priced]) -> float:
        saved_ns = min(self.by_replay(fixes), self._most_ns(fixes))
        if not self._also:
            saved_ns = min(saved_ns, sum(_price(fix).cost_ns for fix in fixes))
        over = [fix for fix in fixes if self.by_replay([fix]) - self.by_replay([]) > (1 + EXACT) * _price(fix).cost_ns]
        if over:
            rest = [fix for fix in fixes if fix not in over]
            saved_ns = min(saved_ns, self.by_replay(rest) + sum(_price(fix).cost_ns for fix in over))
        return saved_ns

    def _is_replayed(self, fix: Priced) -> bool:
        return self.replays and bool(fix.changes)

    def _replayed(self, fixes: Sequence[Priced]) -> float:
        added_ns = sum(_price(fix).est_ns for fix in fixes if not self._is_replayed(fix))
        return self._gain_ns(self.changes(fixes), fixes) + added_ns

    def _gain_ns(self, changes: Sequence[Change], fixes: Sequence[Priced]) -> float:
        """What changes save in the replay with these fixes, of which none may take longer than the step."""
        facts = self._facts
        share = facts.replay(changes).step_ns / facts.replayed.step_ns if changes else 1.0
        return min(facts.step_ns * (1 - share), facts.step_ns - self._least_ns(fixes))

    def _least_ns(self, fixes: Sequence[Priced]) -> float:
        """The shortest step with these fixes."""
        return min(self.step_ns, max((_price(fix).least_step_ns for fix in fixes), default=0.0))

    def _most_ns(self, fixes: Sequence[Priced]) -> float:
        """The most that these fixes can save, or the changes beside them."""
        if self._also:
            return self.step_ns
        return min(MAX_SAVED_SHARE * self.step_ns, self.step_ns - self._least_ns(fixes))


def _key(fixes: Iterable[Priced]) -> frozenset[int]:
    return frozenset(map(id, fixes))


def _price(fix: Priced) -> Price:
    if fix.price is None:
        raise ValueError(f"what {fix.finding.code} saves is not known")
    return fix.price
