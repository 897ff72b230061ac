"""How the command failed, added to its traces, so that a later analysis of them knows it as well."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

from ..recording.trace_file import open_saved


def add_failure(traces: Sequence[Path], code: int, steps: int) -> None:
    """Adds the key `failure` to the traces. `code` is the exit code of the command, or minus the signal that killed it;
    `steps` is how many steps it completed. A trace that cannot be changed stays as it is.
    """
    failure = {"exit_code": code if code >= 0 else None, "signal": signal_name(-code) if code < 0 else None}
    for path in traces:
        try:
            saved, head = open_saved(path)
            saved.replace_head(head | {"failure": failure | {"steps": steps}})
        except (OSError, ValueError, KeyError, TypeError):  # of a damaged or foreign file
            continue


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
