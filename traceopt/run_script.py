"""Runs the command of `traceopt run`: settings, log folder, progress, and the messages at the end."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceopt.capture.launch import launcher
from traceopt.capture.launch.cpu_peaks import add_cpu_peaks
from traceopt.capture.launch.failure import add_failure
from traceopt.capture.launch.gpu_sampler import GpuSampler
from traceopt.capture.launch.launcher import end_alike as end_alike
from traceopt.capture.launch.outcome import RecordingOutcome, read_outcome
from traceopt.capture.launch.progress import RunProgress
from traceopt.capture.recording import requests
from traceopt.capture.recording.event_memory import MOST_EVENTS
from traceopt.capture.recording.memory_snapshots import SUFFIX
from traceopt.capture.settings import STEP_SOURCES, Cycle, Settings, Trigger, needed_steps, plan_cycles, recorded_steps
from traceopt.errors import OutputError, one_line, suggestion, visible
from traceopt.result.words.quantities import counted

if TYPE_CHECKING:
    from traceopt.result.document import Result
    from traceopt.trying.workspace import Command

LOGDIR = "traceopt-logs"
CONTROL = ".traceopt"  # in the log folder, while a run writes there
MOST_RUNS = 100  # of one name at once
OUT_OF_MEMORY = f".oom{SUFFIX}"


def settings(
    command: Sequence[str],
    module: bool,
    logdir: Path | None,
    name: str | None,
    *,
    step_on: str | None,
    stop_after: bool,
    time_limit: float,
    memory_snapshot: bool = False,
    trigger: Trigger | None = None,
    **schedule: Any,
) -> Settings:
    """The settings for the options. `schedule` goes to plan_cycles. With a trigger, the first cycle waits for it.

    Raises click.UsageError for options that do not go together.
    """
    try:
        cycles = plan_cycles(**schedule)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if step_on is not None and step_on not in STEP_SOURCES and not _names_function(step_on):
        expected = "batch, update, backward, forward or module:function"
        raise click.UsageError(f"--step-on {step_on}: expected {expected}{suggestion(step_on, STEP_SOURCES)}")
    if trigger is not None:
        cycles = (replace(cycles[0], wait=0), *cycles[1:])
    folder = _folder(logdir, name, command[0] if module else _script(command))
    return Settings(folder, cycles, step_on, stop_after, time_limit, memory_snapshot=memory_snapshot, trigger=trigger)


def trial_settings(
    command: Command, logdir: Path | None, name: str | None = None, preset: str | None = None
) -> Settings:
    """The settings for a recording in a copy of the source, which ends when everything is recorded."""
    words, module, step_on = command.words, command.module, command.step_on
    return settings(words, module, logdir, name, step_on=step_on, stop_after=True, time_limit=120.0, preset=preset)


def in_a_free_folder(settings: Settings) -> Settings:
    """The settings, with another log folder if a run is writing into this one. Raises OutputError."""
    wanted = settings.folder
    for number in range(2, MOST_RUNS):
        try:
            settings.folder.mkdir(parents=True, exist_ok=True)
            (settings.folder / CONTROL).mkdir()
            return settings
        except FileExistsError:
            if not _is_in_use(settings.folder / CONTROL):
                return settings
        except OSError as error:
            raise OutputError(f"cannot write to the log folder {settings.folder}: {error.strerror}") from error
        settings = replace(settings, folder=wanted.with_name(f"{wanted.name}-{number}"))
    raise OutputError(f"{MOST_RUNS} runs write to the log folder {wanted}")


def _is_in_use(control: Path) -> bool:
    """Whether a run that has not ended writes there. A folder without any is that of a run that is just starting."""
    runs = [path.name.rpartition("-")[2] for path in control.iterdir()]
    return not runs or any(number.isdecimal() and _is_running(int(number)) for number in runs)


def _is_running(pid: int) -> bool:
    if os.name != "posix":  # where signal 0 is none
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # of another user
        return True
    return True


def planned(command: Sequence[str], module: bool, settings: Settings) -> str:
    """What `record` would start and record.

    Raises click.UsageError if the command cannot be started.
    """
    cycles = zip(settings.cycles, recorded_steps(settings.cycles), strict=True)
    recorded = [
        *(
            f"Steps {steps.start} to {steps.stop - 1}: {_contents(cycle)} ({cycle.name} cycle)"
            for cycle, steps in cycles
        ),
        f"The run needs {needed_steps(settings.cycles)} steps, counted from 0.",
    ]
    if settings.trigger is not None:
        recorded = [
            f"Recording begins when: {settings.trigger.reasons}",
            *(f"{counted(cycle.active, 'step')}: {_contents(cycle)} ({cycle.name} cycle)" for cycle in settings.cycles),
        ]
    lines = [
        f"Command: {shlex.join(command_line(command, module))}",
        f"Traces: {shown(settings.folder)}",
        *recorded,
        f"A step ends: {settings.step_on or 'detected from data loaders, optimizers and backward passes'}",
        *(["Memory: the history of the CUDA allocator, with lines of code"] if settings.memory_snapshot else []),
        f"A cycle ends early after {settings.time_limit_s:g} s, or about {MOST_EVENTS:,} events.",
    ]
    return "".join(f"{visible(line)}\n" for line in lines)


def record(command: Sequence[str], module: bool, settings: Settings, *, quiet: bool) -> tuple[int, RecordingOutcome]:
    """Runs the command to its end. Returns its exit code, as launcher.run_command does, and what was recorded.

    Raises click.UsageError if the command cannot be started, OutputError if the log folder cannot be created.
    """
    words = command_line(command, module)
    control = settings.folder / CONTROL / f"{time.time_ns()}-{os.getpid()}"
    try:
        control.mkdir(parents=True)
        settings.save(control / "settings.json")
    except OSError as error:
        raise OutputError(f"cannot write to the log folder {settings.folder}: {error.strerror}") from error

    def ask() -> None:
        requests.ask(str(control))

    def show(text: str) -> None:
        click.echo(f"traceopt: {text}", err=True)

    handled = {}
    if settings.trigger is not None and settings.trigger.on_request:
        (control / requests.TAKEN).touch()
        if (number := getattr(signal, "SIGUSR2", None)) is not None:
            signal.signal(number, signal.SIG_IGN)  # also after the run, while it is analyzed
            handled[number] = ask
    watch = RunProgress(control, show) if sys.stderr.isatty() and not quiet else None
    try:
        with GpuSampler(settings.folder):
            code = launcher.run_command(words, launcher.child_environment(control), watch or _nothing, handled)
        outcome = read_outcome(control, settings, code)
        if code:
            add_failure(outcome.traces, code, outcome.steps)
        return code, outcome
    except launcher.CommandError as error:
        raise click.UsageError(str(error)) from error
    finally:
        shutil.rmtree(control, ignore_errors=True)
        for folder in (control.parent, settings.folder, settings.folder.parent):
            remove_if_empty(folder)


def calibrate(outcome: RecordingOutcome, code: int) -> None:
    """Adds what the CPU reaches to the traces of a run without a GPU, unless a signal ended the run."""
    if code >= 0:
        add_cpu_peaks(outcome.traces)


def remarks(outcome: RecordingOutcome, *, quiet: bool) -> Iterator[str]:
    """Messages for the user that are not in the report."""
    if outcome.reason is not None:
        yield f"nothing was recorded: {outcome.reason}"
    elif not quiet:
        yield from outcome.notes
    for path in outcome.memory_snapshots:
        if path.name.endswith(OUT_OF_MEMORY):
            yield f"the run was out of GPU memory; the memory snapshot is kept: traceopt analyze {shown(path)}"


def with_failure(result: Result, outcome: RecordingOutcome) -> Result:
    """The result, with what happened to the script before its verdict if the script failed. It is there already, unless
    the trace was too large to add it.
    """
    if outcome.failure is None or result.ending == outcome.failure:
        return result
    from msgspec.structs import replace

    warning = f"{outcome.failure} The report covers the steps that were recorded before."
    verdict = f"{outcome.failure} {result.verdict}"
    return replace(result, verdict=verdict, ending=outcome.failure, warnings=[warning, *result.warnings])


def footer(outcome: RecordingOutcome, settings: Settings, analysis_s: float | None = None) -> str:
    """Where the traces are, and how long saving and analyzing them took."""
    lines = [f"Traces: {shown(settings.folder)}"]
    analysis = "" if analysis_s is None else f", the analysis {analysis_s:.1f} s"
    lines.append(f"Saving the traces took {outcome.saving_s:.1f} s{analysis}.")
    return "".join(f"{line}\n" for line in lines)


def shown(folder: Path) -> str:
    """The folder as the user can type it."""
    return os.path.relpath(folder)


def source_folders(command: Sequence[str]) -> list[Path]:
    """Folders whose source files may be read: the script's folder and the current folder."""
    script = next((Path(word) for word in command if word.endswith(".py")), None)
    return [*([script.parent] if script is not None else []), Path()]


def was_terminated(code: int) -> bool:
    """Whether a signal ends the whole job, so that there is no time left for the analysis."""
    return -code in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))


def command_line(command: Sequence[str], module: bool) -> list[str]:
    """What is started. Raises click.UsageError if it cannot be."""
    try:
        return launcher.command_line(command, module)
    except launcher.CommandError as error:
        raise click.UsageError(str(error)) from error


def _contents(cycle: Cycle) -> str:
    extras = {"shapes": cycle.record_shapes, "memory": cycle.profile_memory, "lines of code": cycle.with_stack}
    return ", ".join(["times", *(name for name, recorded in extras.items() if recorded)])


def _script(command: Sequence[str]) -> str:
    """The name of the script in the command line, or else the name of the program."""
    return Path(next((word for word in command if word.endswith(".py")), command[0])).stem


def _folder(logdir: Path | None, name: str | None, script: str) -> Path:
    if name is not None and (Path(name).name != name or name.startswith(".")):
        raise click.UsageError(f"--name {name}: expected a folder name")
    if logdir is not None:
        folder = (logdir / name if name else logdir).absolute()
    else:
        folder = (Path(LOGDIR) / (name or f"{script}-{time.strftime('%Y%m%d-%H%M%S')}")).absolute()
    if any(ord(letter) < 32 for letter in str(folder)):
        raise click.UsageError(
            f"--logdir {one_line(str(folder))}: the profiler writes no files there, as the path has a "
            "line break or another control character"
        )
    return folder


def _names_function(text: str) -> bool:
    module, colon, function = text.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *function.split(".")))


def remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return


def _nothing() -> None:
    return
