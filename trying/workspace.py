"""Makes variants in copies of the source and starts them there."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from traceopt.capture.launch import launcher
from traceopt.capture.launch.cpu_peaks import add_cpu_peaks
from traceopt.capture.launch.outcome import RecordingOutcome, read_outcome
from traceopt.capture.settings import Settings
from traceopt.errors import InputError, OutputError, one_line
from traceopt.rules.fixes.patches.patch import combined_patch
from traceopt.rules.fixes.patches.unified import unified_diff
from traceopt.trying import diffs
from traceopt.trying.changes import Change
from traceopt.trying.measured_run import Failure, MeasuredRun, read_run
from traceopt.trying.running.gpu_clocks import GpuClocks
from traceopt.trying.running.guard import Guard
from traceopt.trying.running.interruption import Interruption
from traceopt.trying.running.processes import EndedError, Script
from traceopt.trying.source_copy import Snapshot, repository_of, stand_in

FOLDER = ".traceopt-try"
ORIGINAL = "original"  # the revision of the source before anything was baked
OUTPUT = "output"  # what a script prints, in its control folder
TAIL_LINES, TAIL_BYTES = 12, 16_384
FULL_DISK_BYTES = 4 << 20  # less is too little for a trace
SIGNAL_DELIVERY_S = 0.2  # within which a signal reaches all processes of a job
_OUT_OF_MEMORY = ("OutOfMemoryError", "out of memory", "can't allocate memory", "Cannot allocate memory", "MemoryError")
MOVED_FROM, MOVED_TO = "TRACEOPT_MOVED_FROM", "TRACEOPT_MOVED_TO"  # read by capture/script/moved_source.py


class Command(Struct, frozen=True):
    """The user's command and the folder in which it was given. `module`: as in python -m."""

    words: tuple[str, ...]
    module: bool
    folder: Path
    step_on: str | None = None


class Started(Struct):
    """A script that was started, and the folder for its settings and for what it writes to traceopt."""

    control: Path
    settings: Settings
    script: Script


class Workspace:
    """A folder for everything that `traceopt try` writes and removes; a context manager.

    Every script starts in a fresh copy of the source, the n-th of those that take turns always at the same place.
    `on_poll` shows progress.
    """

    def __init__(
        self, command: Command, logs: Path, interruption: Interruption, on_poll: Callable[[], None] = lambda: None
    ) -> None:
        self.command = command
        self.logs = logs
        self._interruption = interruption
        self._on_poll = on_poll
        self._folder = logs / FOLDER
        self._places: list[tuple[Path, Path]] = []  # a copy, and the folder in which its script is started
        self._start_folder = command.folder.resolve()
        self.root, self._in_repository = project_of(command, self._start_folder)
        self._source = Snapshot(self.root, self._folder / "source", self._in_repository)
        self._elsewhere: Snapshot | None = None  # the current folder, if it is not part of the source
        if not self._start_folder.is_relative_to(self.root):
            deep = not _contains_home(self._start_folder)
            self._elsewhere = Snapshot(self._start_folder, self._folder / "start", False, deep=deep)
        self._revisions: dict[str, Snapshot] = {}
        self._clocks = GpuClocks()
        self._guard: Guard | None = None
        self._starts = 0
        self._baked = ""  # patches, one after the other

    def __enter__(self) -> Workspace:
        """Raises OutputError or InputError."""
        try:
            self._folder.mkdir(parents=True)
        except OSError as error:
            raise OutputError(f"cannot write to the log folder {self.logs}: {error.strerror}") from error
        self._guard = Guard(self._folder, self.root)
        try:
            self._source.take()
            if self._elsewhere is not None:
                self._elsewhere.take()
            self._place(0)
        except OSError as error:
            self.close()
            raise OutputError(f"cannot write to the log folder {self.logs}: {error.strerror}") from error
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for snapshot in (*self._revisions.values(), self._source, self._elsewhere):
            if snapshot is not None:
                snapshot.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._guard is not None:
            self._guard.end()

    @property
    def source_folders(self) -> list[Path]:
        """The snapshot of the user's source, and the folders in it from which the script is started and in which it is.

        Patches are relative to the first one.
        """
        script = _script_of(self.command, self._start_folder)
        folders = [self.root, self._start_folder, *([script.parent] if script is not None else [])]
        inside = [folder.relative_to(self.root) for folder in folders if folder.is_relative_to(self.root)]
        moved = [self._source.folder / folder for folder in dict.fromkeys(inside)]
        return [folder for folder in moved if folder.is_dir()]

    def as_of_the_user(self, text: bytes) -> bytes:
        """The text with the user's folders in place of the copies."""
        for copy, start in self._places:
            text = text.replace(os.fsencode(copy), os.fsencode(self.root))
            text = text.replace(os.fsencode(start), os.fsencode(self._start_folder))
        return text

    def add_revision(self, revision: str) -> None:
        """Checks out another commit, for later runs. Raises InputError."""
        if not self._in_repository:
            raise InputError(f"--against {revision}: {self.root} is not a git repository")
        folder = self._folder / f"revision-{len(self._revisions)}"
        snapshot = Snapshot(self.root, folder, True, revision)
        snapshot.take()
        self._revisions[revision] = snapshot

    def patch_of(self, changes: Sequence[Change]) -> str:
        """One diff of the user's source with all patches among the changes. Raises diffs.DiffError or OSError."""
        fixes = [change.finding for change in changes if change.finding is not None]
        patch, _ = combined_patch(fixes, self.source_folders) if fixes else ("", [])
        return "".join([patch, *(_ended(change.diff) for change in changes if change.diff is not None)])

    def bake(self, changes: Sequence[Change]) -> None:
        """Makes the patches of these changes a part of the source, for all later runs and recordings.

        The revision ORIGINAL is the source without them. Raises OutputError.
        """
        try:
            if ORIGINAL not in self._revisions:
                original = Snapshot(self.root, self._folder / ORIGINAL, False)
                self._source.copy_to(original.folder)
                self._revisions[ORIGINAL] = original
            patch = self.patch_of(changes)
            if patch:
                diffs.apply(self._source.folder, patch)
                self._baked += patch
        except (OSError, diffs.DiffError) as error:
            raise OutputError(f"cannot change the copy of the source: {error}") from error

    def baked_patch(self) -> str:
        """One diff of the user's source with all that was baked."""
        if not self._baked:
            return ""
        folders = self._revisions[ORIGINAL].folder, self._source.folder
        names = diffs.files_of(self._baked)
        if not all((folder / name).is_file() for folder in folders for name in names):
            return self._baked  # files were added, removed or renamed
        before_and_after = ([(folder / name).read_text("utf-8") for folder in folders] for name in names)
        return "".join(unified_diff(name, *texts) for name, texts in zip(names, before_and_after, strict=True))

    def record(
        self, settings: Settings, time_limit_s: float, changes: Sequence[Change] = ()
    ) -> tuple[RecordingOutcome, Failure | None]:
        """Records the script with these changes in a copy, and then what the CPU reaches, as `traceopt run` does.

        Returns the outcome, and how the script failed, if it did.

        Raises SignalError, OutputError or InputError.
        """
        failed = None
        try:
            with self.started(changes, settings, time_limit_s) as run:
                try:
                    while (code := self.advance(run)) is None:
                        pass
                    failed = self.failure(run, code) if code else None
                except EndedError as ended:
                    code = -signal.SIGTERM
                    failed = Failure(ended.why, self.last_lines(run))
        except launcher.CommandError as error:
            raise InputError(str(error)) from error
        except (OSError, diffs.DiffError) as error:
            raise OutputError(f"cannot copy the source: {error}") from error
        outcome = read_outcome(run.control, settings, code)
        add_cpu_peaks(outcome.traces)
        return outcome, failed

    @contextmanager
    def started(
        self, changes: Sequence[Change], settings: Settings, time_limit_s: float, number: int = 0
    ) -> Iterator[Started]:
        """Starts the script with these changes; no process and no copy is left. `number`: of those that take turns.

        Raises SignalError, CommandError, DiffError or OSError.
        """
        self._interruption.check()
        copy, start = self._place(number)
        try:
            self._prepare(copy, start, changes)
            control = self._new_control()
            settings.save(control / "settings.json")
            environment = launcher.child_environment(control)
            environment.setdefault("PYTHONHASHSEED", "0")
            environment |= {MOVED_FROM: str(self.root), MOVED_TO: str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
            for change in changes:
                environment |= change.environment
            words = [self._moved(word, copy) for word in self.command.words]
            words += [word for change in changes for word in change.arguments]
            python = next((change.python for change in changes if change.python is not None), None)
            if python is not None:
                environment["PATH"] = os.pathsep.join([os.path.dirname(python), environment.get("PATH", os.defpath)])
            command = _command_line(words, self.command.module, start, python or sys.executable)
            self._clocks.reset()
            with (control / OUTPUT).open("wb") as output:
                script = Script(command, environment, start, output, time_limit_s)
            with script:
                yield Started(control, settings, script)
        finally:
            for folder in (copy, start):
                shutil.rmtree(folder, ignore_errors=True)

    def advance(self, run: Started) -> int | None:
        """Lets the script go on until its turn is over (None), or it ends: its exit code, or minus the signal that
        killed it. Raises EndedError or SignalError.
        """
        try:
            code = run.script.advance(self._poll)
        except EndedError:
            self._interruption.check()
            raise
        if code:
            self._check_shared_signal()
        return code

    def measured(self, run: Started, code: int) -> MeasuredRun | Failure:
        """What a timed run measured that ended with this exit code."""
        if code:
            return self.failure(run, code)
        measured = read_run(run.control)
        if isinstance(measured, str):
            return Failure(f"nothing was measured: {_why(run, measured)}", self.last_lines(run))
        return replace(measured, clock_share=self._clocks.share, throttled=self._clocks.throttled)

    def failure(self, run: Started, code: int) -> Failure:
        output = self.last_lines(run)
        return Failure(self._how_it_ended(code, output), output)

    def last_lines(self, run: Started) -> list[str]:
        """Of what the script printed, with the user's folders in place of the copies."""
        return _tail(run.control / OUTPUT, self.as_of_the_user)

    def _place(self, number: int) -> tuple[Path, Path]:
        """Where the copy of the source is made, and the folder in which its script is started. Raises OSError."""
        while len(self._places) <= number:
            count = len(self._places)
            copy = stand_in(self._folder / f"run-{count}", self.root)
            if self._elsewhere is not None:
                start = stand_in(self._folder / f"elsewhere-{count}", self._start_folder)
            else:
                start = copy / self._start_folder.relative_to(self.root)
            self._places.append((copy, start))
        return self._places[number]

    def _poll(self) -> str | None:
        self._clocks.sample()
        self._on_poll()
        return "interrupted" if self._interruption.arrived else None

    def _how_it_ended(self, code: int, output: Sequence[str]) -> str:
        if any(words in line for line in output for words in _OUT_OF_MEMORY):
            return "it ran out of memory"
        ended = f"it was killed by signal {-code}" if code < 0 else f"it ended with exit code {code}"
        if shutil.disk_usage(self.logs).free < FULL_DISK_BYTES:  # then the output may lack the error
            return f"{ended}; the disk of {self.logs} is almost full"
        return ended

    def _new_control(self) -> Path:
        self._starts += 1
        control = self._folder / f"control-{self._starts}"
        control.mkdir()
        return control

    def _prepare(self, copy: Path, start: Path, changes: Sequence[Change]) -> None:
        """A fresh copy of the source with the changes. Raises DiffError or OSError."""
        revision = next((change.revision for change in changes if change.revision is not None), None)
        snapshot = self._revisions[revision] if revision is not None else self._source
        snapshot.copy_to(copy)
        if self._elsewhere is not None:
            self._elsewhere.copy_to(start)
        fixes = [change for change in changes if change.finding is not None]
        for count in range(1, len(fixes) + 1):
            _check_patch(fixes[:count], self.source_folders)
        if fixes:
            diffs.apply(copy, self.patch_of(fixes))
        for change in changes:
            if change.diff is not None:
                diffs.apply(copy, change.diff)

    def _check_shared_signal(self) -> None:
        """The script may have failed because of a signal to all processes of a job, as scancel of Slurm sends it.

        It may reach this process a moment after the script. Raises SignalError.
        """
        time.sleep(SIGNAL_DELIVERY_S)
        self._interruption.check()

    def _moved(self, word: str, copy: Path) -> str:
        """The path of a script in the source, as a path in the copy. Relative ones are that already, in a copy of the
        current folder that is part of the source.
        """
        if not word.endswith((".py", ".pyz")) or (self._elsewhere is None and not os.path.isabs(word)):
            return word
        path = Path(os.path.realpath(self._start_folder / word))
        moved = copy / path.relative_to(self.root) if path.is_relative_to(self.root) else None
        return str(moved) if moved is not None and moved.exists() else word


def _why(run: Started, measured: str) -> str:
    marks = {name: (run.control / name).exists() for name in ("failed", "loaded", "torch")}
    if not marks["torch"] or marks["failed"]:
        return read_outcome(run.control, run.settings, 0).reason or measured
    return measured


def _script_of(command: Command, start: Path) -> Path | None:
    path = next(((start / word).resolve() for word in command.words if word.endswith(".py")), None)
    return path if path is not None and path.is_file() else None


def _contains_home(folder: Path) -> bool:
    """Whether the user's home folder is the folder or in it."""
    return Path(os.path.expanduser("~")).resolve().is_relative_to(folder)


def project_of(command: Command, start: Path) -> tuple[Path, bool]:
    """The top of the source, and whether it is a repository: of the current folder, if it contains the script; else of
    the script. The home folder, and a folder that contains it, is no source: all of the user's projects are in it.
    """
    script = _script_of(command, start)
    for folder in (start, script.parent) if script is not None else (start,):
        repository = repository_of(folder)
        root = repository or folder
        if script is None or (script.is_relative_to(root) and (repository or not _contains_home(root))):
            break
    return root, repository is not None


def _command_line(words: Sequence[str], module: bool, folder: Path, python: str) -> list[str]:
    """As the launcher makes it; a script is looked for in the folder of the run."""
    first = words[0]
    if not module and first.endswith((".py", ".pyc", ".pyz")) and not os.path.isabs(first):
        if not (folder / first).exists():
            raise launcher.CommandError(f"no such script: {first}")
        return [python, first, *words[1:]]
    return launcher.command_line(words, module, python)


def _check_patch(fixes: Sequence[Change], folders: Sequence[Path]) -> None:
    """Whether the patch of the last fix can be made on top of those before it. Raises DiffError."""
    findings = [change.finding for change in fixes if change.finding is not None]
    if combined_patch(findings, folders)[0] == combined_patch(findings[:-1], folders)[0]:
        others = ", ".join(change.name for change in fixes[:-1]) or "this version of the source"
        raise diffs.DiffError(f"{fixes[-1].name} cannot be made on top of {others}")


def _tail(log: Path, translated: Callable[[bytes], bytes]) -> list[str]:
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.path.getsize(log) - TAIL_BYTES))
            lines = translated(file.read()).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return [one_line(line) for line in lines if line.strip()][-TAIL_LINES:]


def _ended(diff: str | None) -> str:
    text = diff or ""
    return text if text.endswith("\n") or not text else text + "\n"
