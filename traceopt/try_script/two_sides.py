"""Records and times a script in two states of its source: as of a commit, and as of another one or as it is now."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

from msgspec import Struct

from traceopt.capture.settings import Settings
from traceopt.comparison.compare import Timed, compare_runs
from traceopt.comparison.gates import Gate
from traceopt.comparison.metrics import STEP_TIME
from traceopt.comparison.runs import RunOfSide
from traceopt.output import StderrProgress
from traceopt.result.comparison import Comparison
from traceopt.result.words.quantities import counted
from traceopt.try_script.one_plan import SETTLE_STEPS, Analyze, ScriptError, recorded_result, steps_of_a_run
from traceopt.trying.changes import Change, revision_change
from traceopt.trying.rounds import LEAST_ROUNDS, Rounds, measure
from traceopt.trying.timed_runs import Limits, TimedRuns
from traceopt.trying.workspace import Workspace

LEAST_PAIRS = 3  # of runs: fewer could be alike by chance
SAME_SHARE = 0.02  # of the step: a difference that is surely smaller is none


class State(Struct, frozen=True):
    """A state of the source, and its name."""

    name: str
    changes: list[Change] = []


WORKING_TREE = State("working tree")


def of_commit(revision: str, name: str = "") -> State:
    """Raises ConfigError for a name that git would take for an option."""
    return State(f"commit {name or revision}", [revision_change(revision)])


class Timing(Struct, frozen=True):
    """`steps` None: as many as fit into about five seconds. No run begins when `budget_s` is over, and none may take
    longer than `time_limit_s`.
    """

    steps: int | None
    budget_s: float
    time_limit_s: float


class TwoSides:
    """Runs any two states of the source in one workspace."""

    def __init__(
        self, workspace: Workspace, settings: Settings, timing: Timing, progress: StderrProgress, *, quiet: bool
    ) -> None:
        self._workspace = workspace
        self._settings = settings
        self._timing = timing
        self._progress = progress
        self._quiet = quiet
        self._until = time.monotonic() + timing.budget_s
        self._checked_out: set[str] = set()
        self.compared: Comparison | None = None

    @property
    def left_s(self) -> float:
        return self._until - time.monotonic()

    def rounds(
        self,
        base: State,
        head: State,
        enough: Callable[[Rounds], bool],
        steps: int,
        budget_s: float,
        finished_round: Callable[[Rounds], None] = lambda _: None,
    ) -> Rounds:
        """Pairs of timed runs until there are enough, or `budget_s` is spent. Raises SignalError or InputError."""
        self._check_out(base, head)
        until = time.monotonic() + budget_s

        def note(rounds: Rounds) -> None:
            finished_round(rounds)
            pairs = counted(len(rounds.before), "pair")
            self._progress(f"timing the {head.name} against the {base.name}: {pairs} of runs")

        return measure(
            TimedRuns(self._workspace, Limits(steps, SETTLE_STEPS, self._timing.time_limit_s)),
            base.changes,
            head.changes,
            wanted_us=lambda _: None,
            time_left=lambda: until - time.monotonic(),
            finished_round=note,
            enough=enough,
        )

    def compare(self, base: State, head: State, analyze: Analyze, gates: Sequence[Gate] = ()) -> None:
        """Records both sides once, and times them until the answer is certain or the budget is spent. `compared` has
        the answer, also if a signal ended it after LEAST_ROUNDS.

        Raises SignalError, or TraceoptError if the script cannot be recorded on both sides, or fails.
        """
        self._check_out(base, head)
        recorded = [self._recorded(side, state, analyze) for side, state in (("base", base), ("head", head))]
        limits = [gate.limit for gate in gates if _is_on_change(gate)]
        steps = steps_of_a_run(self._timing.steps, recorded[1].result)
        known = Rounds([], [])

        def note(rounds: Rounds) -> None:
            nonlocal known
            known = rounds

        try:
            rounds = self.rounds(base, head, lambda rounds: is_certain(rounds, limits), steps, self.left_s, note)
        finally:
            if len(known.before) >= LEAST_ROUNDS:
                steps_us = ([run.steps_us for run in side] for side in (known.counted_before, known.counted_after))
                self.compared = compare_runs(recorded[:1], recorded[1:], gates, timed=Timed(known.change(), *steps_us))
        if rounds.failed is not None:
            side, failure = rounds.failed
            raise ScriptError(
                f"a timed run of the {(base if side == 'before' else head).name} failed: {failure.reason}"
            )

    def _recorded(self, side: str, state: State, analyze: Analyze) -> RunOfSide:
        folder = self._settings.folder / side
        folder.mkdir()
        result = recorded_result(
            self._workspace,
            dataclasses.replace(self._settings, folder=folder),
            self._timing.time_limit_s,
            analyze,
            self._progress,
            quiet=self._quiet,
            changes=state.changes,
            state=f"of the {state.name}",
        )
        if result is None:
            raise ScriptError(f"there is no recording of the {state.name}")
        return RunOfSide(state.name, result)

    def _check_out(self, *states: State) -> None:
        for change in (change for state in states for change in state.changes):
            if change.revision is not None and change.revision not in self._checked_out:
                self._workspace.add_revision(change.revision)
                self._checked_out.add(change.revision)


def is_certain(rounds: Rounds, limits: Sequence[float]) -> bool:
    """Whether more rounds would not change the answer: the interval of the change excludes every limit. Without any, it
    excludes 0, or it lies within SAME_SHARE of it.
    """
    if len(rounds.counted) < LEAST_PAIRS or rounds.busy:
        return False
    change = rounds.change()
    low, high = change.low_share, change.high_share
    if low is None or high is None:
        return False
    apart = all(not low <= limit <= high for limit in limits or [0.0])
    return apart or (not limits and max(-low, high) <= SAME_SHARE)


def _is_on_change(gate: Gate) -> bool:
    """Whether the gate limits the change of the step time in per cent."""
    return gate.in_percent and gate.metric is not None and gate.metric.name == STEP_TIME
