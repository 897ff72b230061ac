"""Whether a repair is one: `traceopt try` measures that the step is shorter and that the losses are the same."""

from __future__ import annotations

import difflib
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks.agents.repairs.tasks import SCRIPT, Task
from traceopt.result.document import Result

STEPS = 400  # of the script: more than are recorded or measured
MEASURED = 20  # in each run


class Grade(Struct, frozen=True):
    """`verdict`: of `traceopt try`; a repair that is right has "keep". `gain_share`: of the step that was."""

    verdict: str
    gain_share: float | None = None
    losses: str | None = None
    reason: str | None = None

    @property
    def is_repaired(self) -> bool:
        return self.verdict == "keep"


def graded(task: Task, repaired: str, minutes: float = 0.5) -> Grade:
    """The grade of a script that should be a repair of the task's. Raises RuntimeError if `traceopt try` fails."""
    if repaired == task.script:
        return Grade("no_gain", reason="the script is unchanged")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job").mkdir()
        (folder / "job" / SCRIPT).write_text(task.script, encoding="utf-8")
        (folder / "repair.diff").write_text(diff_of(task.script, repaired), encoding="utf-8")
        options = [
            "--quiet", "--top=0", "--patch=../repair.diff", "--preset=quick", "--no-html", "--json=../result.json",
            "--logdir=../log", f"--budget={minutes}", f"--steps={MEASURED}",
        ]  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "traceopt", "try", *options, SCRIPT, str(STEPS)],
            cwd=folder / "job", capture_output=True, text=True,
        )  # fmt: skip
        document = folder / "result.json"
        if not document.is_file():
            raise RuntimeError(done.stderr.strip())
        tried = msgspec.json.decode(document.read_bytes(), type=Result).tried[0]
    return Grade(
        tried.verdict, tried.gain_share, tried.losses.verdict if tried.losses is not None else None, tried.reason
    )


def diff_of(before: str, after: str) -> str:
    lines = (text.splitlines(keepends=True) for text in (before, after))
    return "".join(difflib.unified_diff(*lines, f"a/{SCRIPT}", f"b/{SCRIPT}"))
