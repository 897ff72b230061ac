"""What fixes save one after the other: each is replayed on the step that the fixes before it leave."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import Change
from traceopt.analyzer.replay.partial import partial
from traceopt.rules.savings.known_error import MAX_SAVED_SHARE
from traceopt.rules.savings.price import Priced

EXACT = 0.01  # of a saving: how closely the replayed part of a fix has to save what was measured
MOST_TRIES = 6  # replays to find that part


class State(Struct, frozen=True):
    """The step with some fixes made. `changes`: as far as they save what was measured. `left_ns`: its duration."""

    changes: tuple[Change, ...]
    replayed_ns: float
    left_ns: float
    least_ns: float  # it cannot become shorter with these fixes


class SuccessiveSavings:
    """What fixes save given others, ns per step. Each step with fixes made is replayed once.

    The replay may find that a fix saves more than was measured of its cost. Then the fixes after it are replayed on a
    step with a part of its changes: the part that saves what its row states. So all rows and their sum agree.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._states: dict[tuple[int, ...], State] = {(): State((), facts.step_ns, facts.step_ns, 0.0)}
        self._saved_ns: dict[tuple[int, ...], float] = {}

    def after(self, fixes: Sequence[Priced]) -> State:
        """The step once these fixes are made, in this order."""
        key = tuple(map(id, fixes))
        if key not in self._states:
            self._states[key] = self._next(fixes[:-1], fixes[-1])
        return self._states[key]

    def of(self, fix: Priced, given: Sequence[Priced]) -> float:
        """What a fix saves after others: at most what was measured of it, and what is left of the step."""
        key = (*map(id, given), id(fix))
        if key not in self._saved_ns:
            self._saved_ns[key] = self._saved(fix, given)
        return self._saved_ns[key]

    def at_worst(self, fix: Priced, given: Sequence[Priced]) -> float:
        """What a fix saves after others if it changes the least that is likely."""
        price = fix.price
        if price is None:
            return 0.0
        if not self._replays(fix):
            return price.low_ns
        return min(self._gain_ns(self.after(given), fix, price.worst), price.bounds_ns[0])

    def at_best(self, fix: Priced, given: Sequence[Priced]) -> float:
        """What a fix saves after others at best."""
        price = fix.price
        if price is None:
            return 0.0
        if not self._replays(fix):
            return price.high_ns
        return min(self._gain_ns(self.after(given), fix, price.best), price.bounds_ns[2])

    def together(self, fixes: Sequence[Priced], given: Sequence[Priced]) -> float:
        """What replayed fixes save together after others."""
        before = self.after(given)
        least_ns = max([before.least_ns, *map(_least_ns, fixes)])
        changes = [change for fix in fixes for change in fix.changes]
        after_ns = self._replayed_ns([*before.changes, *changes], least_ns)
        return min(before.replayed_ns - after_ns, self._most_ns(before))

    def most_of(self, fix: Priced, given: Sequence[Priced]) -> float:
        """The most that any fix could save after others, but for what this one itself takes."""
        before = self.after(given)
        return min(self._most_ns(before), before.left_ns - max(before.least_ns, _least_ns(fix)))

    @property
    def step_ns(self) -> float:
        return self._facts.step_ns

    @property
    def replayed(self) -> bool:
        return self._facts.replay_error is not None

    def _replays(self, fix: Priced) -> bool:
        return self.replayed and bool(fix.changes)

    def _saved(self, fix: Priced, given: Sequence[Priced]) -> float:
        before, price = self.after(given), fix.price
        if price is None:
            return 0.0
        saved_ns: float = price.est_ns
        if self._replays(fix):
            saved_ns = min(self._gain_ns(before, fix, fix.changes), price.bounds_ns[1])
        return max(0.0, min(saved_ns, self._most_ns(before)))

    def _next(self, given: Sequence[Priced], fix: Priced) -> State:
        before, saved_ns = self.after(given), self.of(fix, given)
        left_ns = before.left_ns - saved_ns
        if not self._replays(fix):
            return replace(before, left_ns=left_ns)
        changes = (*before.changes, *self._as_far_as_measured(before, fix, saved_ns))
        least_ns = max(before.least_ns, _least_ns(fix))
        return State(changes, self._replayed_ns(changes, least_ns), left_ns, least_ns)

    def _as_far_as_measured(self, before: State, fix: Priced, saved_ns: float) -> Sequence[Change]:
        """The part of the fix's changes that saves so much in the replay. All of them if they do not save more."""
        changes: Sequence[Change] = fix.changes
        gain_ns = self._gain_ns(before, fix, changes)
        (least, least_ns), (most, most_ns) = (0.0, 0.0), (1.0, gain_ns)  # shares of the changes, and what they save
        for _ in range(MOST_TRIES if gain_ns > saved_ns else 0):
            if abs(gain_ns - saved_ns) <= EXACT * saved_ns:
                break
            share = least + (most - least) * (saved_ns - least_ns) / (most_ns - least_ns)
            changes = partial(fix.changes, share)
            gain_ns = self._gain_ns(before, fix, changes)
            if gain_ns > saved_ns:
                most, most_ns = share, gain_ns
            else:
                least, least_ns = share, gain_ns
        return changes

    def _gain_ns(self, before: State, fix: Priced, changes: Sequence[Change]) -> float:
        least_ns = max(before.least_ns, _least_ns(fix))
        return before.replayed_ns - self._replayed_ns([*before.changes, *changes], least_ns)

    def _replayed_ns(self, changes: Sequence[Change], least_ns: float) -> float:
        """The step with these changes, as a part of the measured step: the replay may differ from it slightly."""
        share = self._facts.replay(changes).step_ns / self._facts.replayed.step_ns if changes else 1.0
        return max(self.step_ns * share, min(least_ns, self.step_ns))

    def _most_ns(self, state: State) -> float:
        return max(0.0, state.left_ns - (1 - MAX_SAVED_SHARE) * self.step_ns)


def _least_ns(fix: Priced) -> float:
    """The shortest step with this fix."""
    return fix.price.least_step_ns if fix.price is not None else 0.0
