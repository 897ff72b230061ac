"""Finds the run of a process, and asks it for a recording."""

from __future__ import annotations

import os
from pathlib import Path

from traceopt.capture.recording import requests
from traceopt.capture.settings import load_settings
from traceopt.errors import InputError, OutputError, visible

CONTROL = "TRACEOPT_CONTROL"


def request_recording(pid: int) -> str:
    """Returns the log folder of the run. Raises InputError for a process that takes no requests, OutputError if the
    request cannot be written.
    """
    control = _control_of(pid) or next(filter(None, map(_control_of, _children(pid))), None)
    if control is None:
        raise InputError(f"process {pid} was not started by traceopt run, or belongs to another user")
    if not (control / requests.TAKEN).exists():
        raise InputError(f"the run of process {pid} takes no requests: start it with traceopt run --record-on-request")
    try:
        requests.ask(str(control))
    except OSError as error:
        raise OutputError(f"cannot write to {control}: {error.strerror}") from error
    return visible(str(load_settings(str(control / "settings.json")).folder))


def _control_of(pid: int) -> Path | None:
    """The control folder of the run that a process belongs to; None for a process of no run, or that cannot be read."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    found = next((variable for variable in variables if variable.startswith(f"{CONTROL}=".encode())), None)
    folder = None if found is None else Path(os.fsdecode(found.partition(b"=")[2]))
    return folder if folder is not None and folder.is_dir() else None


def _children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except (OSError, ValueError):
        return []
