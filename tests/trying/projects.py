"""Projects with the stand-in script, and `traceopt try` on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result as Outcome
from support.command_line import one_error, run

STAND_IN = Path(__file__).with_name("stand_in.py")
SCRIPT = "job/train.py"
FASTER = ("STEP_US = 1000.0", "STEP_US = 700.0")
IDENTITY = ("-c", "user.email=someone@example.org", "-c", "user.name=Someone")


@dataclass(frozen=True)
class Project:
    """A folder with the script, in a repository or not."""

    folder: Path

    def git(self, *words: str) -> str:
        command = ["git", *IDENTITY, *words]
        return subprocess.run(command, cwd=self.folder, check=True, capture_output=True, text=True).stdout

    @property
    def state(self) -> tuple[str, ...]:
        """All that git says about the repository."""
        return tuple(self.git(*words) for words in (("status", "--short"), ("worktree", "list"), ("branch", "-a")))

    @property
    def script(self) -> Path:
        return self.folder / SCRIPT

    def diff(self, name: str, old: str, new: str) -> Path:
        """A diff of the script, as git would write it, outside of the project."""
        before = self.script.read_text()
        assert old in before
        self.script.write_text(before.replace(old, new))
        path = self.folder.parent / name
        path.write_text(self.git("diff"))
        self.script.write_text(before)
        return path

    def command(self, *options: str, script: tuple[str, ...] = (SCRIPT,), command: str = "try") -> list[str]:
        html = [] if command in ("compare", "bisect") else ["--no-html"]
        return [sys.executable, "-m", "traceopt", command, "--quiet", *html, "--steps", "10", *options, *script]

    def start(
        self, *options: str, script: tuple[str, ...] = (SCRIPT,), command: str = "try", **variables: str
    ) -> subprocess.Popen[str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TRACEOPT")} | variables
        return subprocess.Popen(
            self.command(*options, script=script, command=command),
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def rows(
        self, *options: str, script: tuple[str, ...] = (SCRIPT,), command: str = "try", **variables: str
    ) -> list[dict[str, Any]]:
        """The rows of a try, or a tuning, that ends well. The command runs in this process."""
        outcome = self.invoke("--json", "-", *options, script=script, command=command, **variables)
        assert outcome.exit_code == 0, outcome.stderr
        rows: list[dict[str, Any]] = json.loads(outcome.stdout)["tried"]
        return rows

    def invoke(
        self, *options: str, script: tuple[str, ...] = (SCRIPT,), command: str = "try", **variables: str
    ) -> Outcome:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            for name in [name for name in os.environ if name.startswith("TRACEOPT")]:
                patch.delenv(name)
            for name, value in variables.items():
                patch.setenv(name, value)
            return run(*self.command(*options, script=script, command=command)[3:])


def refused(project: Project, *words: str, command: str = "try") -> str:
    """The one line of a command that cannot begin."""
    return one_error(project.invoke(*words, script=(), command=command))


def processes_in(folder: Path) -> list[str]:
    """The command lines of processes that some run in this folder has started."""
    found = []
    for number in process_numbers_in(folder):
        with suppress(OSError):
            found.append(Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def process_numbers_in(folder: Path) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"TRACEOPT_CONTROL={folder}".encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


def wait_for_the_hanging_run(project: Project) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for path in (project.folder / "traceopt-logs").glob("*/.traceopt-try/control-*/output"):
            if path.read_bytes() == b"started\n" and processes_in(project.folder):
                return
        time.sleep(0.05)
    raise AssertionError("the script never hung")


def copies(project: Project) -> list[Path]:
    return list(project.folder.glob("traceopt-logs/*/.traceopt-try"))
