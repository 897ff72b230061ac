"""Runs `traceopt tune`: records, tries what the plan says, keeps what proved itself, and records again."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace

from traceopt.capture.machine import usable_cores
from traceopt.capture.settings import Settings
from traceopt.output import StderrProgress
from traceopt.result.document import Result
from traceopt.result.finding import Finding
from traceopt.result.words.effort_and_risk import Risk
from traceopt.rules.fixes.run_time import without_compile_settings
from traceopt.try_script.one_plan import (
    SETTLE_STEPS,
    Analyze,
    Outcome,
    add_revisions,
    recorded_result,
    run_in_copies,
    say_if_too_short,
    steps_of_a_run,
    teller,
)
from traceopt.trying.changes import Change, NotTried, changes_of
from traceopt.trying.expectation import recording_of, run_steps_of
from traceopt.trying.rounds import Rounds
from traceopt.trying.session import Session, not_made
from traceopt.trying.timed_runs import Limits, TimedRuns
from traceopt.trying.tuning.course import Plan, tune
from traceopt.trying.tuning.searched import searches, step_times
from traceopt.trying.workspace import ORIGINAL, Command, Workspace

MOST_OF_BUDGET = 1 / 6  # for one change
_RISKS = {  # those that a change may not have, and what allows it
    Risk.NUMERICS: "numerics",
    Risk.CONVERGENCE: "numerics",
    Risk.CORRECTNESS: None,  # only a person can tell
    Risk.OTHER: None,
}


class Wanted(Struct, frozen=True):
    """What to tune. `own` are the user's changes; `allow` has "numerics", "batch-size", or both.

    `steps` None: as many as fit into about five seconds. `run_steps`: of a whole run; None: not known.
    """

    own: list[Change]
    allow: Collection[str]
    steps: int | None
    budget_s: float
    time_limit_s: float
    run_steps: int | None = None


def tune_script(command: Command, settings: Settings, wanted: Wanted, analyze: Analyze, *, quiet: bool) -> Outcome:
    """Raises TraceoptError if the script cannot be run or copied. A signal ends it with what was proven so far."""

    def work(outcome: Outcome, workspace: Workspace, progress: StderrProgress) -> None:
        _tune(outcome, workspace, settings, wanted, analyze, progress, quiet=quiet)

    return run_in_copies(command, settings.folder, work, quiet=quiet)


def _tune(
    outcome: Outcome,
    workspace: Workspace,
    settings: Settings,
    wanted: Wanted,
    analyze: Analyze,
    progress: StderrProgress,
    *,
    quiet: bool,
) -> None:
    add_revisions(workspace, wanted.own)
    began = time.monotonic()
    first = recorded_result(workspace, settings, wanted.time_limit_s, analyze, progress, quiet=quiet)
    outcome.result = first
    recording_s = time.monotonic() - began
    steps = steps_of_a_run(wanted.steps, first)
    say_if_too_short(wanted.budget_s - recording_s, steps, first, quiet=quiet)
    run = TimedRuns(workspace, Limits(steps, SETTLE_STEPS, wanted.time_limit_s))
    session = Session(
        run,
        budget_s=max(1.0, wanted.budget_s - recording_s),
        longest_s=MOST_OF_BUDGET * wanted.budget_s,
        run_steps=wanted.run_steps or run_steps_of(first),
        enough=is_known,
        tell=teller(progress, quiet=quiet),
    )

    def make_plan(number: int) -> Plan:
        folder = settings.folder / f"round-{number}"
        again = dataclasses.replace(settings, folder=folder)
        result = first
        if number > 1:
            folder.mkdir()
            result = recorded_result(
                workspace,
                again,
                wanted.time_limit_s,
                analyze,
                progress,
                quiet=quiet,
                changes=session.kept,
                state="with all that was kept",
            )
        return plan_of(result, wanted.allow)

    def keep(kept: Sequence[Change]) -> list[Change]:
        workspace.bake(kept)
        return [
            replace(change, finding=None, diff=None, environment=without_compile_settings(change.environment))
            for change in kept
        ]

    left = list[NotTried]()
    original = Change(ORIGINAL, "revision", "the script as it was", "revision", revision=ORIGINAL)
    try:
        left = tune(session, run, make_plan, keep, wanted.own, original, recording_s)
    finally:
        outcome.tried = [*session.tried, *map(not_made, left)]
        outcome.patch = "".join([workspace.baked_patch(), workspace.patch_of(session.kept)])
        outcome.kept = list(session.kept)


def is_known(rounds: Rounds) -> bool:
    """Whether it is known if a change is kept. How much it gains is measured at the end, with all that was kept."""
    return rounds.settled or rounds.decided


def plan_of(result: Result | None, allow: Collection[str]) -> Plan:
    """What one recording offers."""
    if result is None:
        return Plan(None)
    changes, left = changes_of(result, (), None, lambda finding: _refusal(finding, allow))
    device = result.run.device
    return Plan(
        recording_of(result),
        changes,
        left,
        searches(
            step_times(result),
            cores=usable_cores(),
            gpu=device is not None and device.vendor != "cpu",
            compiled=result.torch_compile is not None,
            threads=result.cpu.threads if result.cpu is not None else None,
            numerics="numerics" in allow,
        ),
    )


def _refusal(finding: Finding, allow: Collection[str]) -> str | None:
    """Why the fix is not tried; None if it is."""
    if finding.risk in _RISKS and (option := _RISKS[finding.risk]) not in allow:
        how = f"use --allow {option}" if option is not None else f"traceopt try --fix {finding.code} measures it"
        return f"its risk is: {str(finding.risk).lower()}; {how}"
    if "batch-size" not in allow and any(name.endswith("batch_size") for name in finding.fix.settings):
        return "it changes the batch size; use --allow batch-size"
    return None
