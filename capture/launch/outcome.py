"""What a run recorded, and if nothing, why, according to the files that its processes left in the control folder."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from ..settings import PRESETS, Settings, first_recorded_step, needed_steps
from ..status import Status, read_statuses
from .failure import signal_name

LITTLE_BYTES = 1_000_000  # with less free disk space than this, a trace did not fit


@dataclass(frozen=True)
class RecordingOutcome:
    """`traces` are the files of this run; `reason` says why there are none; `notes` say what did not go as planned.
    `failure` is a sentence if the command failed after it had written traces.
    `steps` is how many steps were completed, in the process with most of them.
    `memory_snapshots` are files beside the traces, also of a run that died before it recorded any.
    """

    traces: list[Path]
    reason: str | None
    notes: list[str]
    saving_s: float  # how long the script waited for its traces, in the process that waited longest
    failure: str | None = None
    steps: int = 0
    memory_snapshots: list[Path] = field(default_factory=list)


def read_outcome(control: Path, settings: Settings, code: int) -> RecordingOutcome:
    """`code` is the exit code of the command, or minus the signal that killed it."""
    statuses = read_statuses(control)
    written = [settings.folder / trace.file for status in statuses for trace in status.traces]
    traces = [path for path in written if path.exists()]
    reason = None if traces else _why_nothing(control, settings, statuses, code)
    notes = _notes(settings, statuses, code) if traces else []
    saving_s = max((status.saving_s for status in statuses), default=0.0)
    failure = _failed_after(statuses, code) if traces else None
    snapshots = [settings.folder / name for status in statuses for name in status.memory_snapshots]
    there = [path for path in snapshots if path.exists()]
    steps = max((status.step for status in statuses), default=0)
    return RecordingOutcome(traces, reason, notes, saving_s, failure, steps, there)


def _why_nothing(control: Path, settings: Settings, statuses: list[Status], code: int) -> str:
    if not control.exists():
        return f"the log folder {settings.folder} was deleted while the command ran"
    failed = control / "failed"
    if failed.exists():
        return f"recording could not start: {failed.read_text(encoding='utf-8', errors='replace').strip()}"
    busiest = max(statuses, key=lambda status: status.step, default=None)
    if (busiest is None or not busiest.ended) and _free_bytes(control) < LITTLE_BYTES:
        return f"the disk of the log folder {settings.folder} is full"
    if not (control / "loaded").exists():
        return (
            "traceopt could not load into the command's Python: Python was started with -I, -E or -S or with an empty "
            "environment, or the command does not run Python"
        )
    how = _failure(code)
    if not (control / "torch").exists():
        return f"the command {how} before it imported torch" if how else "the command never imported torch"
    if busiest is None:
        return f"the command {how or 'was killed'} before its first training step ended"
    if not busiest.ended and busiest.step:
        steps = f" (steps {busiest.first_step} to {busiest.last_step})" if busiest.cycle else ""
        return f"the command was killed while traceopt was {busiest.phase}{steps}"
    if busiest.troubles:
        return busiest.troubles[0]
    if busiest.own_profiler:
        files = ", ".join(busiest.own_traces[:3])
        its = f"; it wrote {files}, which traceopt analyze can read" if files else ""
        return f"the script runs torch.profiler itself, and only one profiler can run at a time{its}"
    if not busiest.step:
        return _no_steps(busiest, settings, how)
    if settings.trigger is not None and busiest.cycle is None:
        return f"the recording never began in {_count(busiest.step, 'step')}; it begins when {settings.trigger.reasons}"
    return _too_short(busiest, settings, how)


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def _failure(code: int) -> str | None:
    """How the command failed, None if it did not."""
    if code < 0:
        return f"was killed by {signal_name(-code)}"
    return f"failed (exit code {code})" if code else None


def _failed_after(statuses: list[Status], code: int) -> str | None:
    """ "The script failed (exit code 1) after 12 steps."; None if it did not fail."""
    how = _failure(code)
    return f"The script {how} after {_count(max(status.step for status in statuses), 'step')}." if how else None


def _too_short(status: Status, settings: Settings, how: str | None) -> str:
    first = first_recorded_step(settings.cycles)
    after = f"after {_count(status.step, 'step')}"
    ended = f"the command {how} {after}" if how else f"the run ended {after}"
    if status.step > first:
        return status.notes[-1] if status.notes else ended
    steps = f"{ended}, and recording starts with step {first}, counted from 0"
    if how:
        return steps
    needed, quick, passes = needed_steps(settings.cycles), needed_steps(PRESETS["quick"]), status.backwards
    shorter = f", or --preset quick, which needs {quick}" if quick < needed else ""
    if settings.step_on is None and passes >= max(needed, 2 * status.step):  # as with LBFGS
        shorter += f", or --step-on backward, which saw {passes}"
    return f"{steps}: let it run for {needed} steps{shorter}"


def _no_steps(status: Status, settings: Settings, how: str | None) -> str:
    if settings.step_on is not None:
        module, colon, _ = settings.step_on.partition(":")
        hint = "; a function of the script itself is named __main__:function" if colon and module != "__main__" else ""
        before = f" before the command {how}" if how else ""
        return f"--step-on {settings.step_on}: no step ended{before}{hint}"
    if how:
        return f"the command {how} before its first training step ended"
    seen = ", ".join(
        _count(number, name)
        for number, name in (
            (status.fetches, "DataLoader batch"),
            (status.backwards, "backward"),
            (status.updates, "optimizer update"),
        )
        if number
    )
    unknown = f"no training step was recognized (seen: {seen or 'no DataLoader, backward or optimizer'}); "
    if (step := status.looped_step) is not None:
        what = "a model" if step == "forward" else f"{step.partition(':')[2]}()"
        return f"{unknown}a loop calls {what} for most of the run: make each call a step with --step-on {step}"
    return f"{unknown}name the end of a step with --step-on batch, update, backward, forward or module:function"


def _notes(settings: Settings, statuses: list[Status], code: int) -> list[str]:
    """What did not go as planned. Each note appears once, no matter how many ranks report it."""
    notes = []
    how = _failure(code)
    if how:
        after = _count(max(status.step for status in statuses), "step")
        notes.append(f"the command {how} after {after}; the analysis covers the steps recorded before")
    for status in statuses:
        for trace in status.traces:
            if trace.closed_early is not None:
                steps = f"{trace.steps} of {_count(trace.planned_steps, 'step')}"
                notes.append(f"the {trace.cycle} cycle has {steps}: {trace.closed_early}")
        missing = [cycle.name for cycle in settings.cycles[len(status.traces) :]] if status.traces else []
        if missing:
            cycles = f"the {' and the '.join(missing)} cycle"
            ended = f"; the run ended after {_count(status.step, 'step')}" if status.ended else ""
            notes.append(f"{cycles} {'was' if len(missing) == 1 else 'were'} not recorded{ended}")
        notes += status.troubles
        if status.own_profiler:
            notes.append("the script also runs torch.profiler itself; traceopt recorded at other times")
    return list(dict.fromkeys(notes))


def _count(number: int, name: str) -> str:
    plural = "es" if name.endswith("ch") else "s"
    return f"{number} {name}{'' if number == 1 else plural}"
