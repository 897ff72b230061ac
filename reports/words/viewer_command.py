"""The command that shows a step of the trace in Perfetto."""

from __future__ import annotations

import re
import shlex

from traceopt.result.document import Result

STEP_FILE = "step.json.gz"
_NOT_FOR_VIEWERS = (".zip/", "://", ".sqlite")
_NUMBER = re.compile(r"[0-9]+$")


def viewer_command(result: Result, step: str) -> str | None:
    """Cuts the step out and opens it. If the trace has no steps, it opens the trace; None if its file is not known."""
    path = _shown_file(result)
    if path is None:
        return None
    if result.step.source == "window":
        return f"traceopt view {shlex.quote(path)}"
    number = _NUMBER.search(step)
    name = shlex.quote(step if number is None else number[0])
    return f"traceopt cut {shlex.quote(path)} --step {name} -o {STEP_FILE} && traceopt view {STEP_FILE}"


def in_trace_folder(result: Result) -> bool:
    """Whether the command names the file alone, so that it works in the folder of the trace."""
    path = _shown_file(result)
    return path is not None and "/" not in path


def _shown_file(result: Result) -> str | None:
    """The file with the step that the report shows; None for files that the commands cannot read:
    members of archives, URLs, and exports of Nsight Systems.
    """
    paths = {row.path for row in result.ranks if row.rank == result.run.shown_rank}
    paths = paths or {file.path for file in result.run.files}
    if len(paths) != 1:
        return None
    (path,) = paths
    return None if any(mark in path.lower() for mark in _NOT_FOR_VIEWERS) else path
