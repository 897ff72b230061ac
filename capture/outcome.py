"""What a run has recorded, and if nothing, why: told from what its processes left in the control folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .settings import Settings, first_recorded_step
from .status import Status, read_statuses

TIMING_FIRST = ("detail", "timing")


@dataclass(frozen=True)
class Outcome:
    """`traces` are the files of this run; `reason` says why there is none; `notes` what went otherwise than planned."""

    traces: list[Path]
    analyzed: list[Path]
    reason: str | None
    notes: list[str]
    stretch: dict[str, float]  # by cycle: the median recorded step, as a multiple of the median unrecorded one


def read_outcome(control: Path, settings: Settings) -> Outcome:
    statuses = read_statuses(control)
    written = [(settings.folder / trace.file, trace.cycle) for status in statuses for trace in status.traces]
    traces = [path for path, _ in written if path.exists()]
    reason = None if traces else _why_nothing(control, settings, statuses)
    return Outcome(traces, _to_analyze(written), reason, _notes(statuses), _stretch(statuses))


def _to_analyze(written: list[tuple[Path, str]]) -> list[Path]:
    """The files of the most telling cycle: call sites are in the detail cycle only."""
    cycles = {cycle for path, cycle in written if path.exists()}
    best = next((name for name in TIMING_FIRST if name in cycles), None) or next(iter(sorted(cycles)), None)
    return [path for path, cycle in written if cycle == best and path.exists()]


def _why_nothing(control: Path, settings: Settings, statuses: list[Status]) -> str:
    failed = control / "failed"
    if failed.exists():
        return f"the recording could not start: {failed.read_text(encoding='utf-8', errors='replace').strip()}"
    if not (control / "loaded").exists():
        return (
            "traceopt did not get into the command's Python: it was started with -I, -E or -S, with an emptied "
            "environment, or the command runs no Python at all"
        )
    if not (control / "torch").exists():
        return "the command never imported torch"
    busiest = max(statuses, key=lambda status: status.step, default=None)
    if busiest is None:
        return "the command was killed before its first training step ended"
    lost = next((note for note in busiest.notes if "is lost" in note), None)
    if lost is not None:
        return lost
    if busiest.own_profiler:
        files = ", ".join(busiest.own_traces[:3])
        its = f"; it wrote {files}: traceopt analyze reads that" if files else ""
        return f"the script runs torch.profiler itself, and only one profiler can be at work{its}"
    if not busiest.step:
        return _no_steps(busiest, settings)
    needed = first_recorded_step(settings.cycles) + 1
    if busiest.step < needed:
        return (
            f"the run ended after {_count(busiest.step, 'step')}, and the first to be recorded was number {needed}: "
            "let it run longer, or use --preset quick"
        )
    return busiest.notes[-1] if busiest.notes else "the command was killed while it recorded"


def _no_steps(status: Status, settings: Settings) -> str:
    if settings.step_on is not None:
        return f"--step-on {settings.step_on}: no step has ended that way"
    seen = ", ".join(
        _count(number, name)
        for number, name in (
            (status.fetches, "DataLoader batch"),
            (status.backwards, "backward"),
            (status.updates, "optimizer update"),
        )
        if number
    )
    return (
        f"no training step was recognized (seen: {seen or 'no DataLoader, backward or optimizer'}); say what ends one "
        "with --step-on batch, update, backward, forward or module:function"
    )


def _notes(statuses: list[Status]) -> list[str]:
    """Each once, however many ranks say it."""
    return list(dict.fromkeys(note for status in statuses for note in status.notes))


def _stretch(statuses: list[Status]) -> dict[str, float]:
    for status in statuses:
        if status.unrecorded_us and status.recorded_us:
            return {cycle: us / status.unrecorded_us for cycle, us in status.recorded_us.items()}
    return {}


def _count(number: int, name: str) -> str:
    plural = "es" if name.endswith("ch") else "s"
    return f"{number} {name}{'' if number == 1 else plural}"
