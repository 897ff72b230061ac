"""Runs `traceopt compare --against`: records a script and the same script of another commit, and times both in turn."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from msgspec import Struct

from traceopt.capture.settings import Settings
from traceopt.comparison.compare import Timed, compare_runs
from traceopt.comparison.gates import Gate
from traceopt.comparison.metrics import STEP_TIME
from traceopt.comparison.runs import RunOfSide
from traceopt.output import StderrProgress
from traceopt.result.comparison import Comparison
from traceopt.result.words.quantities import counted
from traceopt.try_script.one_plan import (
    SETTLE_STEPS,
    Analyze,
    Outcome,
    ScriptError,
    recorded_result,
    run_in_copies,
    steps_of_a_run,
)
from traceopt.trying.changes import Change
from traceopt.trying.rounds import LEAST_ROUNDS, Rounds, measure
from traceopt.trying.timed_runs import Limits, TimedRuns
from traceopt.trying.workspace import Command, Workspace

LEAST_PAIRS = 3  # of runs: fewer could be alike by chance
SAME_SHARE = 0.02  # of the step: a difference that is surely smaller is none
HEAD = "working tree"


class Against(Struct, frozen=True):
    """The commit to compare with. `steps` None: as many as fit into about five seconds."""

    revision: Change
    gates: Sequence[Gate]
    steps: int | None
    budget_s: float
    time_limit_s: float


def compare_with(
    command: Command, settings: Settings, wanted: Against, analyze: Analyze, *, quiet: bool
) -> tuple[Comparison | None, int]:
    """BASE is the commit, HEAD the source as it is now; and the exit code of a signal that ended it, or 0.

    A signal leaves the comparison of the pairs of runs so far; None if they are too few. Raises TraceoptError if the
    script cannot be recorded on both sides, or fails.
    """
    found: list[Comparison] = []

    def work(_: Outcome, workspace: Workspace, progress: StderrProgress) -> None:
        until = time.monotonic() + wanted.budget_s
        revision = wanted.revision
        workspace.add_revision(revision.name)
        names = {"base": f"commit {revision.name}", "head": HEAD}
        changes = {"base": [revision], "head": list[Change]()}
        recorded = {}
        for side, name in names.items():
            folder = settings.folder / side
            folder.mkdir()
            result = recorded_result(
                workspace,
                dataclasses.replace(settings, folder=folder),
                wanted.time_limit_s,
                analyze,
                progress,
                quiet=quiet,
                changes=changes[side],
                state=f"of the {name}",
            )
            if result is None:
                raise ScriptError(f"there is no recording of the {name}")
            recorded[side] = RunOfSide(name, result)
        steps = steps_of_a_run(wanted.steps, recorded["head"].result)
        limits = [gate.limit for gate in wanted.gates if is_on_change(gate)]
        known = Rounds([], [])

        def note(rounds: Rounds) -> None:
            nonlocal known
            known = rounds
            progress(f"timing both in turn: {counted(len(rounds.before), 'pair')} of runs")

        try:
            rounds = measure(
                TimedRuns(workspace, Limits(steps, SETTLE_STEPS, wanted.time_limit_s)),
                changes["base"],
                changes["head"],
                wanted_us=lambda _: None,
                time_left=lambda: until - time.monotonic(),
                finished_round=note,
                enough=lambda rounds: is_certain(rounds, limits),
            )
        finally:
            if len(known.before) >= LEAST_ROUNDS:
                sides = ([recorded["base"]], [recorded["head"]])
                steps_us = ([run.steps_us for run in side] for side in (known.counted_before, known.counted_after))
                timed = Timed(known.change(), *steps_us)
                found.append(compare_runs(*sides, wanted.gates, timed=timed))
        if rounds.failed is not None:
            side, failure = rounds.failed
            name = names["base" if side == "before" else "head"]
            raise ScriptError(f"a timed run of the {name} failed: {failure.reason}")

    outcome = run_in_copies(command, settings.folder, work, quiet=quiet)
    return (found[0] if found else None), outcome.signal_exit_code


def is_on_change(gate: Gate) -> bool:
    """Whether the gate limits the change of the step time in per cent."""
    return gate.in_percent and gate.metric is not None and gate.metric.name == STEP_TIME


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
