"""Runs `traceopt bisect`: a binary search for the commit, or the version of a package, that changed the step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from traceopt.capture.settings import Settings
from traceopt.errors import InputError, one_line
from traceopt.output import StderrProgress
from traceopt.result.bisection import SHORT, Bisection, TestedCommit
from traceopt.result.comparison import Comparison
from traceopt.result.sections.run import Tool
from traceopt.result.words.quantities import counted, signed_percent
from traceopt.try_script.one_plan import Analyze, Outcome, run_in_copies, steps_for
from traceopt.try_script.two_sides import State, Timing, TwoSides, is_certain, of_commit
from traceopt.trying.rounds import Rounds
from traceopt.trying.source_copy import git
from traceopt.trying.workspace import Command, Workspace
from traceopt.version import __version__


class Candidate(Struct, frozen=True):
    """A commit with its subject, or a version with its interpreter; and how its script is run."""

    name: str
    title: str
    state: State


class Span(Struct, frozen=True):
    """What is searched, oldest first; the last one is BAD. `package`: whose versions they are; None: commits."""

    good: State
    candidates: Sequence[Candidate]
    package: str | None = None


class Sides(Protocol):
    """What the search asks of TwoSides."""

    compared: Comparison | None

    @property
    def left_s(self) -> float: ...

    def rounds(
        self, base: State, head: State, enough: Callable[[Rounds], bool], steps: int, budget_s: float
    ) -> Rounds: ...

    def compare(self, base: State, head: State, analyze: Analyze) -> None: ...


def bisect(
    command: Command,
    good: str,
    bad: str,
    versions: Span | None,
    settings: Settings,
    timing: Timing,
    analyze: Analyze,
    *,
    quiet: bool,
) -> tuple[Bisection | None, int]:
    """The first commit after GOOD, or the first of `versions`, whose step is like BAD's; and the exit code of a signal
    that ended it, or 0.

    A signal leaves the commits that were tested so far. Raises TraceoptError, also if GOOD is not an ancestor of BAD.
    """
    started = list[Search]()

    def work(_: Outcome, workspace: Workspace, progress: StderrProgress) -> None:
        span = versions or Span(of_commit(good), _commits(workspace.root, good, bad))
        sides = TwoSides(workspace, settings, timing, progress, quiet=quiet)
        started.append(Search(sides, good, bad, span, timing.steps))
        started[0].run(analyze)

    outcome = run_in_copies(command, settings.folder, work, quiet=quiet)
    return (started[0].document() if started else None), outcome.signal_exit_code


class Search:
    """`tested` grows while it runs. `good`, `bad`: as they were given."""

    def __init__(self, sides: Sides, good: str, bad: str, span: Span, steps: int | None) -> None:
        self._sides = sides
        self._names = good, bad
        self._span = span
        self._candidates = span.candidates
        self._wanted_steps = steps
        self._steps = steps_for(steps, None)  # of a run
        self._last_good, self._first_bad = -1, len(span.candidates) - 1  # places that are known
        self._unknown: set[int] = set()
        self.tested: list[TestedCommit] = []

    def run(self, analyze: Analyze) -> None:
        """Raises SignalError, or TraceoptError if a recording fails."""
        self._steps = self._enough_steps()
        bad = self._test(self._first_bad, None)
        if bad.like != "bad" or bad.change_share is None:
            return
        half_way = math.expm1(math.log1p(bad.change_share) / 2)
        while (place := self._middle()) is not None and self._sides.left_s > 0:
            row = self._test(place, half_way)
            if row.like == "bad":
                self._first_bad = place
            elif row.like == "good":
                self._last_good = place
            else:
                self._unknown.add(place)
        if not self._between:
            before = self._candidates[self._last_good].state if self._last_good >= 0 else self._span.good
            self._sides.compare(before, self._candidates[self._first_bad].state, analyze)

    def document(self) -> Bisection:
        good, bad = self._names
        left = self._candidates[self._last_good + 1 : self._first_bad + 1]
        is_bad = any(row.like == "bad" for row in self.tested)
        found = self._row_of(left[0]) if is_bad and len(left) == 1 else None
        whole = Bisection(
            Tool("traceopt", __version__),
            "",
            good,
            bad,
            len(self._candidates),
            self.tested,
            found,
            [one.name for one in left] if is_bad and found is None else [],
            self._sides.compared,
            self._span.package,
        )
        return replace(whole, verdict=_verdict(whole))

    @property
    def _between(self) -> range:
        """The places that may be good or bad."""
        return range(self._last_good + 1, self._first_bad)

    def _middle(self) -> int | None:
        """The place to test next: nearest to the middle of those that were not tested in vain."""
        middle = (self._last_good + self._first_bad) / 2
        places = (place for place in self._between if place not in self._unknown)
        return min(places, key=lambda place: abs(place - middle), default=None)

    def _enough_steps(self) -> int:
        """Steps of a run, by those of a first pair."""
        good, bad = self._span.good, self._candidates[-1].state
        pair = self._sides.rounds(good, bad, lambda pair: bool(pair.before), self._steps, self._sides.left_s)
        return steps_for(self._wanted_steps, pair.before[0].step_us if pair.before else None)

    def _test(self, place: int, half_way: float | None) -> TestedCommit:
        """`half_way`: the change of the step half way to BAD; None in the test of BAD."""
        limits = [] if half_way is None else [half_way]
        more = math.ceil(math.log2(len(self._between) + 1)) + 1  # tests, and the comparison at the end
        rounds = self._sides.rounds(
            self._span.good,
            self._candidates[place].state,
            lambda rounds: is_certain(rounds, limits),
            self._steps,
            self._sides.left_s / (more + 1),
        )
        row = TestedCommit(self._candidates[place].name, self._candidates[place].title, "unknown")
        if rounds.failed is not None:
            row = replace(row, reason=rounds.failed[1].reason)
        else:
            row = _judged(row, rounds, half_way)
        self.tested.append(row)
        return row

    def _row_of(self, candidate: Candidate) -> TestedCommit:
        return next(row for row in self.tested if row.commit == candidate.name)


def _verdict(whole: Bisection) -> str:
    found = whole.first
    if found is not None:
        what = " ".join(filter(None, [whole.package, whole.short(found.commit)]))
        return f"{what} ({found.subject}) changed the step: {signed_percent(found.change_share)}."
    if whole.left:
        return f"One of {counted(len(whole.left), whole.noun)} changed the step. No test told which."
    reason = whole.tested[0].reason if whole.tested else "nothing was measured"
    return f"No change of the step between {whole.good} and {whole.bad} is certain: {reason}."


def _judged(row: TestedCommit, rounds: Rounds, half_way: float | None) -> TestedCommit:
    change = rounds.change()
    share = change.change_share
    row = replace(row, change_share=share, low_share=change.low_share, high_share=change.high_share)
    if half_way is None:
        apart = change.verdict in ("slower", "faster")
        return replace(row, like="bad") if apart else replace(row, reason="its step may be that of GOOD")
    if share is None or not is_certain(rounds, [half_way]):
        return replace(row, reason="the runs vary too much")
    return replace(row, like="bad" if (share - half_way) * half_way > 0 else "good")


def _commits(repository: Path, good: str, bad: str) -> list[Candidate]:
    """The commits after GOOD, up to BAD, oldest first, without those of merged branches. Raises InputError."""
    for revision in (good, bad):
        of_commit(revision)  # refuses options of git
        if git(repository, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").returncode:
            raise InputError(f"{revision} is no commit of {repository}")
    if git(repository, "merge-base", "--is-ancestor", good, bad).returncode:
        raise InputError(f"{good} is not an ancestor of {bad}")
    listed = git(repository, "log", "--first-parent", "--reverse", "--format=%H %s", f"{good}..{bad}")
    lines = [line.partition(" ") for line in listed.stdout.decode(errors="replace").splitlines()]
    if not lines:
        raise InputError(f"there is no commit between {good} and {bad}")
    return [
        Candidate(commit, one_line(subject), of_commit(commit, f"{commit[:SHORT]} ({one_line(subject, 50)})"))
        for commit, _, subject in lines
    ]
