"""Makes variants in copies of the source and runs them, one at a time."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from traceopt.capture.launch import launcher
from traceopt.capture.launch.cpu_peaks import add_cpu_peaks
from traceopt.capture.launch.outcome import RecordingOutcome, read_outcome
from traceopt.capture.settings import Settings, TimedRun
from traceopt.errors import InputError, OutputError, one_line
from traceopt.rules.patches.patch import combined_patch
from traceopt.trying import diffs
from traceopt.trying.changes import Change
from traceopt.trying.gpu_clocks import GpuClocks
from traceopt.trying.interruption import Interruption
from traceopt.trying.measured_run import Failure, MeasuredRun, read_run
from traceopt.trying.processes import EndedError, run
from traceopt.trying.source_copy import Snapshot, repository_of, stand_in

FOLDER = ".traceopt-try"
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


class Limits(Struct, frozen=True):
    """`steps` end a run, of which the first `settle` are not measured; `time_limit_s` kills it."""

    steps: int
    settle: int
    time_limit_s: float


class Workspace:
    """A folder for everything that `traceopt try` writes and removes; a context manager.

    Every script starts in a fresh copy of the source, at the same place for all of them. `seconds_left` shows progress.
    """

    def __init__(
        self, command: Command, logs: Path, interruption: Interruption, on_poll: Callable[[], None] = lambda: None
    ) -> None:
        self.command = command
        self.logs = logs
        self._interruption = interruption
        self._on_poll = on_poll
        self._folder = logs / FOLDER
        self._copy = self._folder / "run"
        self._elsewhere_copy = self._folder / "elsewhere"
        self._start_folder = command.folder.resolve()
        self.root, self._in_repository = project_of(command, self._start_folder)
        self._source = Snapshot(self.root, self._folder / "source", self._in_repository)
        self._elsewhere: Snapshot | None = None  # the current folder, if it is not part of the source
        if not self._start_folder.is_relative_to(self.root):
            deep = not _contains_home(self._start_folder)
            self._elsewhere = Snapshot(self._start_folder, self._folder / "start", False, deep=deep)
        self._revisions: dict[str, Snapshot] = {}
        self._clocks = GpuClocks()
        self._runs = 0

    def __enter__(self) -> Workspace:
        """Raises OutputError or InputError."""
        try:
            self._folder.mkdir(parents=True)
        except OSError as error:
            raise OutputError(f"cannot write to the log folder {self.logs}: {error.strerror}") from error
        try:
            self._copy = stand_in(self._copy, self.root)
            self._source.take()
            if self._elsewhere is not None:
                self._elsewhere_copy = stand_in(self._elsewhere_copy, self._start_folder)
                self._elsewhere.take()
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
        """The text with the user's folder in place of the copy's."""
        moved = text.replace(os.fsencode(self._copy), os.fsencode(self.root))
        return moved.replace(os.fsencode(self._start_copy), os.fsencode(self._start_folder))

    def add_revision(self, revision: str) -> None:
        """Checks out another commit, for later runs. Raises InputError."""
        if not self._in_repository:
            raise InputError(f"--against {revision}: {self.root} is not a git repository")
        folder = self._folder / f"revision-{len(self._revisions)}"
        snapshot = Snapshot(self.root, folder, True, revision)
        snapshot.take()
        self._revisions[revision] = snapshot

    def record(self, settings: Settings, time_limit_s: float) -> tuple[RecordingOutcome, Failure | None]:
        """Records the unchanged script in a copy, and then what the CPU reaches, as `traceopt run` does.

        Returns the outcome, and how the script failed, if it did.

        Raises SignalError, OutputError or InputError.
        """
        failed, code = None, -signal.SIGKILL  # if it is ended here
        try:
            control = self._new_control()
            self._prepare_copy([])
            code, output = self._start(settings, control, [], time_limit_s)
            if code:
                failed = Failure(self._how_it_ended(code, output), output)
        except EndedError as ended:
            code = -signal.SIGTERM
            failed = Failure(ended.why, self._last_lines())
        except launcher.CommandError as error:
            raise InputError(str(error)) from error
        except (OSError, diffs.DiffError) as error:
            raise OutputError(f"cannot copy the source: {error}") from error
        finally:
            self._clear()
        outcome = read_outcome(control, settings, code)
        add_cpu_peaks(outcome.traces)
        return outcome, failed

    def measure(self, changes: Sequence[Change], limits: Limits) -> MeasuredRun | Failure:
        """One timed run with these changes. Raises SignalError."""
        switches = {name: value for change in changes for name, value in change.switches.items()}
        timed = TimedRun(limits.steps, limits.settle, switches)
        settings = Settings(self.logs, (), self.command.step_on, timed=timed)
        try:
            control = self._new_control()
            self._prepare_copy(changes)
            self._clocks.reset()
            code, output = self._start(settings, control, changes, limits.time_limit_s)
        except diffs.DiffError as error:
            return Failure(f"the patch does not apply: {error}")
        except OSError as error:
            return Failure(f"cannot make a copy: {error.strerror or error}")
        except launcher.CommandError as error:
            return Failure(one_line(str(error)))
        except EndedError as ended:
            return Failure(ended.why, self._last_lines())
        else:
            measured = read_run(control)
            if code:
                return Failure(self._how_it_ended(code, output), output)
            if isinstance(measured, str):
                return Failure(f"nothing was measured: {self._why(control, settings, measured)}", output)
            return replace(measured, clock_share=self._clocks.share, throttled=self._clocks.throttled)
        finally:
            self._clear()

    @property
    def _start_copy(self) -> Path:
        """The folder in which the script is started."""
        if self._elsewhere is not None:
            return self._elsewhere_copy
        return self._copy / self._start_folder.relative_to(self.root)

    def patch_of(self, changes: Sequence[Change]) -> str:
        """One diff of the user's source with all patches among the changes. Raises diffs.DiffError or OSError."""
        fixes = [change.finding for change in changes if change.finding is not None]
        patch, _ = combined_patch(fixes, self.source_folders) if fixes else ("", [])
        return "".join([patch, *(_ended(change.diff) for change in changes if change.diff is not None)])

    def _why(self, control: Path, settings: Settings, measured: str) -> str:
        marks = {name: (control / name).exists() for name in ("failed", "loaded", "torch")}
        if not marks["torch"] or marks["failed"]:
            return read_outcome(control, settings, 0).reason or measured
        return measured

    def _how_it_ended(self, code: int, output: Sequence[str]) -> str:
        if any(words in line for line in output for words in _OUT_OF_MEMORY):
            return "it ran out of memory"
        ended = f"it was killed by signal {-code}" if code < 0 else f"it ended with exit code {code}"
        if shutil.disk_usage(self.logs).free < FULL_DISK_BYTES:  # then the output may lack the error
            return f"{ended}; the disk of {self.logs} is almost full"
        return ended

    def _new_control(self) -> Path:
        self._runs += 1
        control = self._folder / f"control-{self._runs}"
        control.mkdir()
        return control

    def _prepare_copy(self, changes: Sequence[Change]) -> None:
        """Raises DiffError or OSError."""
        revision = next((change.revision for change in changes if change.revision is not None), None)
        snapshot = self._revisions[revision] if revision is not None else self._source
        snapshot.copy_to(self._copy)
        if self._elsewhere is not None:
            self._elsewhere.copy_to(self._start_copy)
        fixes = [change for change in changes if change.finding is not None]
        for count in range(1, len(fixes) + 1):
            _check_patch(fixes[:count], self.source_folders)
        if fixes:
            diffs.apply(self._copy, self.patch_of(fixes))
        for change in changes:
            if change.diff is not None:
                diffs.apply(self._copy, change.diff)

    def _start(
        self, settings: Settings, control: Path, changes: Sequence[Change], time_limit_s: float | None
    ) -> tuple[int, list[str]]:
        """Runs the command in the copy; returns exit code and last lines. Raises EndedError, SignalError, OSError."""
        settings.save(control / "settings.json")
        environment = launcher.child_environment(control)
        environment.setdefault("PYTHONHASHSEED", "0")
        environment |= {MOVED_FROM: str(self.root), MOVED_TO: str(self._copy), "PYTHONDONTWRITEBYTECODE": "1"}
        for change in changes:
            environment |= change.environment
        folder = self._start_copy
        words = [self._moved(word) for word in self.command.words]
        words += [word for change in changes for word in change.arguments]
        command = _command_line(words, self.command.module, folder)
        began = time.monotonic()

        def poll() -> str | None:
            self._clocks.sample()
            self._on_poll()
            if self._interruption.arrived:
                return "interrupted"
            if time_limit_s is not None and time.monotonic() - began > time_limit_s:
                return f"it took longer than {time_limit_s:g} s"
            return None

        log = self._folder / "output"
        self._interruption.check()
        try:
            with log.open("wb") as output:
                code = run(command, environment, folder, output, poll)
        except EndedError:
            self._interruption.check()
            raise
        if code:
            self._check_shared_signal()
        return code, self._last_lines()

    def _last_lines(self) -> list[str]:
        """Of what the script printed, with the user's folders in place of the copies."""
        return _tail(self._folder / "output", self.as_of_the_user)

    def _check_shared_signal(self) -> None:
        """The script may have failed because of a signal to all processes of a job, as scancel of Slurm sends it.

        It may reach this process a moment after the script. Raises SignalError.
        """
        time.sleep(SIGNAL_DELIVERY_S)
        self._interruption.check()

    def _moved(self, word: str) -> str:
        """The path of a script in the source, as a path in the copy. Relative ones are that already, in a copy of the
        current folder that is part of the source.
        """
        if not word.endswith((".py", ".pyz")) or (self._elsewhere is None and not os.path.isabs(word)):
            return word
        path = Path(os.path.realpath(self._start_folder / word))
        moved = self._copy / path.relative_to(self.root) if path.is_relative_to(self.root) else None
        return str(moved) if moved is not None and moved.exists() else word

    def _clear(self) -> None:
        for folder in (self._copy, self._start_copy):
            shutil.rmtree(folder, ignore_errors=True)


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


def _command_line(words: Sequence[str], module: bool, folder: Path) -> list[str]:
    """As the launcher makes it; a script is looked for in the folder of the run."""
    first = words[0]
    if not module and first.endswith((".py", ".pyc", ".pyz")) and not os.path.isabs(first):
        if not (folder / first).exists():
            raise launcher.CommandError(f"no such script: {first}")
        return [launcher.command_line([str(folder / first)], False)[0], first, *words[1:]]
    return launcher.command_line(words, module)


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
