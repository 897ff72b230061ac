"""The course of `traceopt tune`: record, try what the plan says, search values, and again with all that was kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from traceopt.result.trial import TrialVerdict, TriedChange
from traceopt.result.words.quantities import percent
from traceopt.trying.changes import Change, NotTried
from traceopt.trying.expectation import Recording
from traceopt.trying.rounds import LEAST_GAIN, Runner
from traceopt.trying.session import BUDGET_SPENT, Session
from traceopt.trying.tuning.halving import best_of
from traceopt.trying.tuning.searched import COMPILED_RUN, Search


class Plan(Struct, frozen=True):
    """What one recording offers: fixes in the order of the plan, those that are not tried, and values to search."""

    recording: Recording | None
    changes: list[Change] = []
    left: list[NotTried] = []
    searches: list[Search] = []


def tune(
    session: Session,
    run: Runner[Sequence[Change]],
    make_plan: Callable[[int], Plan],
    keep: Callable[[Sequence[Change]], list[Change]],
    own: Sequence[Change],
    original: Change,
    recording_s: float = 0.0,
) -> list[NotTried]:
    """Returns the fixes of the last plan that were not tried. Raises SignalError; `session` has what was proven.

    `make_plan` records the script with all that was kept, given the number of the round, from 1. `keep` makes the
    patches of changes a part of the source; what it returns has only what is set at run time. `own` are changes of the
    user, for the first round. `original` is the source without any change. `recording_s`: how long a recording takes;
    the first one is made already.
    """
    seen: set[str] = set()
    searched: set[str] = set()
    number, plan = 0, Plan(None)
    while session.spare_s > (recording_s if number else 0.0):
        number += 1
        plan = make_plan(number)
        session.begin_round(number, plan.recording)
        kept = len(session.kept)
        fresh = [change for change in plan.changes if _identity(change) not in seen and _matters(change, plan)]
        fresh = [*_in_order(fresh), *(own if number == 1 else [])]
        seen |= set(map(_identity, fresh))
        session.try_round(fresh)
        for search in plan.searches:
            if search.name not in searched and session.spare_s > 0 and _may_gain(search, plan):
                searched.add(search.name)
                session.announce(f"values of {search.name}")
                failures = list[str]()
                best = best_of(
                    run, session.kept, search.values, lambda: session.spare_s, session.run_steps, failures.append
                )
                if best is not None:
                    session.try_round([best])
                else:
                    session.tried.append(_found_nothing(search, number, session, failures))
        if len(session.kept) == kept:
            break
        session.kept[:] = keep(session.kept)
    left = [search for search in plan.searches if search.name not in searched]
    session.tried += [_not_searched(search, number, session, plan) for search in left]
    if session.kept and session.all_left_s > 0:
        session.try_together([original])
    return plan.left


def _in_order(changes: Sequence[Change]) -> list[Change]:
    """The highest predicted gain for its runs first, but none before the changes that it needs."""

    def worth(change: Change) -> float:
        predicted = change.in_plan or change.alone
        return (predicted.us if predicted is not None else 0.0) / (COMPILED_RUN if change.compiles else 1)

    left, ordered = list(changes), list[Change]()
    while left:
        names = {change.name for change in left}
        free = [change for change in left if not names.intersection(change.needs)] or left
        ordered.append(max(free, key=worth))
        left.remove(ordered[-1])
    return ordered


def _found_nothing(search: Search, number: int, session: Session, failures: Sequence[str]) -> TriedChange:
    if session.spare_s <= 0:
        return _row(search, number, session, "not_tried", BUDGET_SPENT)
    names = ", ".join(value.name for value in search.values)
    if len(failures) == len(search.values):
        return _row(search, number, session, "fails", f"{names}: {'; '.join(dict.fromkeys(failures))}")
    reason = f"none was faster in a run next to the script without it: {names}"
    return _row(search, number, session, "no_gain", reason)


def _not_searched(search: Search, number: int, session: Session, plan: Plan) -> TriedChange:
    reason = BUDGET_SPENT
    if plan.recording is not None and search.most_us is not None and not _may_gain(search, plan):
        reason = f"it can shorten {percent(search.most_us / plan.recording.step_us)} of the step at most"
    return _row(search, number, session, "not_tried", reason)


def _row(search: Search, number: int, session: Session, verdict: TrialVerdict, reason: str) -> TriedChange:
    title, kept = f"values of {search.name}", [one.name for one in session.kept]
    return TriedChange(title, "searched", title, "runtime", verdict, kept, reason, tuning_round=number)


def _identity(change: Change) -> str:
    """The same for a change that another recording offers again."""
    patch = change.finding.fix.patch if change.finding is not None else change.diff
    return repr((patch, sorted(change.switches.items()), sorted(change.environment.items()), change.arguments))


def _may_gain(search: Search, plan: Plan) -> bool:
    """Whether all that the setting can shorten is more than would be kept."""
    if search.most_us is None or plan.recording is None:
        return True
    return search.most_us >= LEAST_GAIN * plan.recording.step_us


def _matters(change: Change, plan: Plan) -> bool:
    """Whether more is predicted than would be kept."""
    predicted = change.in_plan or change.alone
    return predicted is None or plan.recording is None or predicted.us >= LEAST_GAIN * plan.recording.step_us
