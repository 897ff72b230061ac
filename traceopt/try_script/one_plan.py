"""Runs `traceopt try`: records a baseline, makes the plan's fixes and the user's changes, and measures them."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.vocabulary.companion_kinds import TRIALS_FILE
from traceopt.capture.settings import Settings
from traceopt.errors import ConfigError, OutputError, TraceoptError, one_line
from traceopt.output import StderrProgress
from traceopt.result.document import Result
from traceopt.result.encoding.serialization import to_indented_json
from traceopt.result.sections.run import Tool
from traceopt.result.trial import TriedChange
from traceopt.result.words.message import encoded
from traceopt.result.words.quantities import counted
from traceopt.run_script import LOGDIR, remarks, remove_if_empty
from traceopt.trying import history
from traceopt.trying.changes import Change, NotTried, changes_of, with_unique_names
from traceopt.trying.expectation import recording_of, run_steps_of
from traceopt.trying.rounds import LEAST_ROUNDS
from traceopt.trying.running.interruption import Interruption, SignalError
from traceopt.trying.session import Progress, Session, not_made
from traceopt.trying.timed_runs import Limits, TimedRuns
from traceopt.trying.workspace import Command, Workspace
from traceopt.version import __version__

RUN_S = 5.0  # a run measures steps for about this long: more runs tell more than longer ones
LEAST_STEPS, MOST_STEPS, USUAL_STEPS = 20, 200, 50
TASK_COUNTS = {"srun": "SLURM_STEP_NUM_TASKS", "mpirun": "OMPI_COMM_WORLD_SIZE"}  # variables that only tasks have
SETTLE_STEPS = 5  # at the start of each run; not measured

Analyze = Callable[[Sequence[str], Sequence[Path]], Result]


class Wanted(Struct, frozen=True):
    """What to try. `own` are the user's changes. `fixes`: codes; without them, the first `top` rows of the plan.

    `with_plan`: whether fixes are tried at all. `steps` None: as many as fit into about five seconds.
    """

    own: list[Change]
    fixes: tuple[str, ...]
    top: int
    with_plan: bool
    each: bool
    steps: int | None
    budget_s: float
    time_limit_s: float


class Outcome(Struct):
    """What was found, also if a signal ended it. `patch` has all changes that were kept and have one."""

    result: Result | None = None
    tried: list[TriedChange] = []
    patch: str = ""
    kept: list[Change] = []
    signal_exit_code: int = 0


class TriedOnly(Struct, frozen=True):
    """The document of a try without a recording."""

    tool: Tool
    tried: list[TriedChange]

    def to_json(self) -> bytes:
        return to_indented_json(self)


def document_of(outcome: Outcome) -> Result | TriedOnly:
    return outcome.result if outcome.result is not None else TriedOnly(Tool("traceopt", __version__), outcome.tried)


Work = Callable[[Outcome, Workspace, StderrProgress], None]


def try_script(command: Command, settings: Settings, wanted: Wanted, analyze: Analyze, *, quiet: bool) -> Outcome:
    """Raises TraceoptError if the script cannot be run or copied. A signal ends it with what was measured so far."""

    def work(outcome: Outcome, workspace: Workspace, progress: StderrProgress) -> None:
        _try(outcome, workspace, settings, wanted, analyze, progress, quiet=quiet)

    return run_in_copies(command, settings.folder, work, quiet=quiet)


def run_in_copies(command: Command, folder: Path, work: Work, *, quiet: bool) -> Outcome:
    """Does the work in copies of the source, which are removed. A signal ends it; the outcome has what was found.

    The traces go to `folder`. Raises TraceoptError.
    """
    _check_started_once(os.environ)
    outcome = Outcome()
    progress = StderrProgress(enabled=sys.stderr.isatty() and not quiet)
    keep_out_of_git(folder)
    with progress, Interruption() as interruption:
        try:
            with Workspace(command, folder, interruption) as workspace:
                work(outcome, workspace, progress)
        except SignalError:
            pass
        finally:
            remove_if_empty(folder)  # nothing was recorded
        outcome.signal_exit_code = interruption.exit_code
    if outcome.result is not None:
        outcome.result = replace(outcome.result, tried=outcome.tried)
    _remember(outcome, command, folder)
    return outcome


def recorded_result(
    workspace: Workspace,
    settings: Settings,
    time_limit_s: float,
    analyze: Analyze,
    progress: StderrProgress,
    *,
    quiet: bool,
    changes: Sequence[Change] = (),
    state: str = "without any change",
) -> Result | None:
    """What a recording of the script shows; None if it left no trace. `state` says of which script.

    Raises TraceoptError if the script fails.
    """
    progress(f"recording the script {state}")
    recorded, failed = workspace.record(settings, time_limit_s, changes)
    if failed is not None and not recorded.traces:
        lines = "".join(f"\n    {line}" for line in failed.output)
        raise ScriptError(f"the script failed {state}: {failed.reason}{lines}")
    for line in remarks(recorded, quiet=quiet):
        click.echo(f"traceopt: {one_line(line)}", err=True)
    if not recorded.traces:
        return None
    progress("analyzing the recording")
    result = analyze([str(path) for path in recorded.traces], workspace.source_folders)
    whole = msgspec.json.encode(result, enc_hook=encoded)  # messages with their slots
    return msgspec.json.decode(workspace.as_of_the_user(whole), type=Result)


def _try(
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
    outcome.result = recorded_result(workspace, settings, wanted.time_limit_s, analyze, progress, quiet=quiet)
    changes, left = list[Change](), list[NotTried]()
    if outcome.result is not None:
        if wanted.with_plan:
            changes, left = changes_of(outcome.result, wanted.fixes, wanted.top)
    elif not wanted.own:
        raise ScriptError("there is no recording, so there are no fixes to try")
    changes = with_unique_names([*changes, *wanted.own])
    steps, left_s = steps_of_a_run(wanted.steps, outcome.result), wanted.budget_s - (time.monotonic() - began)
    if changes:
        say_if_too_short(left_s, steps, outcome.result, quiet=quiet)
    limits = Limits(steps, SETTLE_STEPS, wanted.time_limit_s)
    session = Session(
        TimedRuns(workspace, limits),
        budget_s=max(1.0, left_s),
        each=wanted.each,
        recording=recording_of(outcome.result) if outcome.result is not None else None,
        run_steps=run_steps_of(outcome.result),
        tell=teller(progress, quiet=quiet),
    )
    try:
        session.try_all(changes)
    finally:
        outcome.tried = [*session.tried, *map(not_made, left)]
        outcome.kept = session.kept
        outcome.patch = workspace.patch_of(session.kept)


def add_revisions(workspace: Workspace, changes: Sequence[Change]) -> None:
    for change in changes:
        if change.revision is not None:
            workspace.add_revision(change.revision)


def _check_started_once(environment: Mapping[str, str]) -> None:
    """Refuses to be one of several tasks: each would decide by itself how often to start the script, and when to end.

    Raises ConfigError.
    """
    for launcher, name in TASK_COUNTS.items():
        count = environment.get(name, "")
        if count.isdecimal() and int(count) > 1:
            raise ConfigError(
                f"traceopt try was started {count} times by {launcher}: start it once, in front of {launcher}: "
                f"traceopt try -- {launcher} python train.py"
            )


class ScriptError(TraceoptError):
    """The output of the script, line by line, is part of the message."""

    def __init__(self, message: str) -> None:
        Exception.__init__(self, message)


def steps_of_a_run(wanted: int | None, result: Result | None) -> int:
    """With those that are not measured."""
    known = result is not None and result.step.source != "window"
    return steps_for(wanted, result.step.typical_us if result is not None and known else None)


def steps_for(wanted: int | None, typical_us: float | None) -> int:
    """The same, given the typical step; None: not known."""
    if wanted is not None:
        return wanted + SETTLE_STEPS
    if not typical_us:
        return USUAL_STEPS + SETTLE_STEPS
    return min(MOST_STEPS, max(LEAST_STEPS, math.ceil(RUN_S * 1e6 / typical_us))) + SETTLE_STEPS


def say_if_too_short(left_s: float, steps: int, result: Result | None, *, quiet: bool) -> None:
    """Says beforehand that the budget cannot be kept, as the first change is measured in any case."""
    typical_us = result.step.typical_us if result is not None and result.step.source != "window" else None
    least_s = 2 * LEAST_ROUNDS * steps * (typical_us or 0.0) / 1e6
    if left_s <= least_s and not quiet:
        click.echo(
            f"traceopt: after the recording, {max(0.0, left_s):.0f} s of the budget are left. "
            f"The first change is measured all the same, in {2 * LEAST_ROUNDS} runs of {counted(steps, 'step')}",
            err=True,
        )


def teller(progress: StderrProgress, *, quiet: bool) -> Callable[[Progress], None]:
    """A line that is replaced on a terminal; elsewhere, one line for each change."""

    def tell(now: Progress) -> None:
        left = f"at most {max(1, round(now.left_s / 60))} min left"
        rounds = f", {counted(now.rounds, 'round')}" if now.rounds else ""
        text = one_line(f"trying {now.number} of {now.count}: {now.name}{rounds}; {left}", 100)
        if sys.stderr.isatty():
            progress(text)
        elif not quiet and not now.rounds:
            click.echo(f"traceopt: {text}", err=True)

    return tell


def keep_out_of_git(folder: Path) -> None:
    """Creates the folder of the logs; git ignores a new one, so that git status stays as it was. Raises OutputError."""
    top = folder.parent if folder.parent.name == LOGDIR else folder
    try:
        new = not top.exists()
        folder.mkdir(parents=True, exist_ok=True)
        if new or top.name == LOGDIR:
            ignore = top / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot write to the log folder {folder}: {error.strerror or error}") from error


def _remember(outcome: Outcome, command: Command, folder: Path) -> None:
    device = outcome.result.run.device if outcome.result is not None else None
    attempts = history.attempts_of(
        outcome.tried,
        time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        script=os.path.basename(next((word for word in command.words if word.endswith(".py")), command.words[0])),
        device=None if device is None else device.name or device.vendor,
        machine=outcome.result.run.machine if outcome.result is not None else None,
    )
    try:
        history.append(history_file(folder), attempts)
    except OutputError as error:  # a full disk must not hide what was measured
        click.echo(f"traceopt: warning: {error}", err=True)


def history_file(folder: Path) -> Path:
    return (folder.parent if folder.parent.name == LOGDIR else folder) / TRIALS_FILE
