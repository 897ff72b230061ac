"""`try_variant` and `tune`: run `traceopt try` or `traceopt tune` as a process, and answer with what it measured."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE

import anyio
import msgspec
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream
from msgspec import Struct, field

from traceopt.assistants.answers import UNTRUSTED, TriedAnswer
from traceopt.assistants.measured_changes import of_trial
from traceopt.assistants.roots import Roots
from traceopt.errors import ConfigError, InputError, one_line
from traceopt.reports.words.comparing import trial_words
from traceopt.result.trial import TriedChange
from traceopt.rules.fingerprint import code_of

GRACE_S = 20.0  # for `traceopt try` to clean up after it was cancelled
_LAST_LINES = 5

Tell = Callable[[str], Awaitable[None]]


class Trial(Struct, frozen=True):
    """What to try: `fixes` by code, or a `diff`, or both. `script` is relative to `folder`, in which it is started.

    `tunes`: `traceopt tune` looks for changes by itself, and tries the diff in its first round.
    """

    folder: Path
    script: str
    arguments: Sequence[str]
    fixes: Sequence[str]
    diff: str | None
    minutes: float
    steps: int | None
    tunes: bool = False


class _Run(Struct):
    paths: list[str] = []


class _Document(Struct):
    """What is read of the result document."""

    tried: list[TriedChange]
    run: _Run = field(default_factory=_Run)


def planned(
    roots: Roots,
    script: str,
    arguments: Sequence[str],
    fixes: Sequence[str],
    diff: str | None,
    folder: str | None,
    minutes: float,
    steps: int | None,
    *,
    tunes: bool = False,
) -> Trial:
    """Raises InputError for a script outside the roots, ConfigError if there is nothing to try."""
    if not tunes and not fixes and not (diff or "").strip():
        raise ConfigError("nothing to try: name fixes or pass a diff")
    start = roots.folder(folder)
    file = roots.checked(start / script, script)
    if not file.is_file() or file.suffix != ".py":
        raise InputError(f"no Python script {one_line(script)} in {start}")
    codes = [code_of(fix) for fix in fixes]
    return Trial(start, os.path.relpath(file, start), arguments, codes, diff, minutes, steps, tunes)


async def tried(trial: Trial, tell: Tell) -> TriedAnswer:
    """Measures the changes. `tell` gets lines of progress. If it is cancelled, the runs are ended and cleaned up.

    Raises InputError with the last lines of a try that failed.
    """
    with tempfile.TemporaryDirectory(prefix="traceopt-") as name:
        found, kept = Path(name, "found.json"), Path(name, "kept.diff")
        process = await anyio.open_process(
            _command(trial, found, kept, Path(name)), cwd=trial.folder, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE
        )
        try:
            last = await _followed(process, tell)
        finally:
            await _ended(process)
        if not found.exists():
            told = "; ".join(line.removeprefix("traceopt: ") for line in last) or f"exit code {process.returncode}"
            raise InputError(f"traceopt {_name(trial)} failed: {one_line(told, 600)}")
        document = msgspec.json.decode(found.read_bytes(), type=_Document)
        diff = kept.read_text("utf-8") if kept.exists() else None
    paths = document.run.paths
    return TriedAnswer(
        untrusted_text=UNTRUSTED,
        tried=[of_trial(row) for row in document.tried],
        kept_diff=diff,
        recording=one_line(os.path.commonpath([os.path.dirname(path) for path in paths])) if paths else None,
        notes=trial_words.notes(document.tried),
    )


def _command(trial: Trial, found: Path, kept: Path, folder: Path) -> list[str]:
    options = ["--no-html", "--json", str(found), "--patch-out", str(kept), "--budget", f"{trial.minutes:g}"]
    options += [word for code in trial.fixes for word in ("--fix", code)]
    options += ["--steps", str(trial.steps)] if trial.steps is not None else []
    if trial.diff is not None and trial.diff.strip():
        file = folder / "variant.diff"
        file.write_text(trial.diff if trial.diff.endswith("\n") else f"{trial.diff}\n", "utf-8")
        options += ["--patch", str(file)]
    return [sys.executable, "-m", "traceopt", _name(trial), *options, "--", trial.script, *trial.arguments]


def _name(trial: Trial) -> str:
    return "tune" if trial.tunes else "try"


async def _followed(process: Process, tell: Tell) -> list[str]:
    """Passes on what the process writes to stderr until it ends. Returns the last lines."""
    last: list[str] = []
    if process.stderr is not None:
        text = ""
        async for part in TextReceiveStream(process.stderr, errors="replace"):
            *lines, text = (text + part).split("\n")
            for line in filter(None, map(one_line, lines)):
                last = [*last, line][-_LAST_LINES:]
                await tell(line)
    await process.wait()
    return last


async def _ended(process: Process) -> None:
    """Ends the process if it still runs: a signal lets `traceopt try` end its runs and remove its copies."""
    if process.returncode is not None:
        return
    with anyio.CancelScope(shield=True):
        with suppress(ProcessLookupError):
            process.terminate()
        with anyio.move_on_after(GRACE_S):
            await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()
