"""Entry point of the agent in a process: leaves a marker, and waits until the script imports torch.

It runs at the start of every Python process below `traceopt run`, so it loads almost nothing. Markers in the control
folder: `loaded` (the agent runs), `torch` (torch was imported), `failed` (the agent could not start, and why).
"""

from __future__ import annotations

import os
from types import ModuleType

from .recording.requests import take_signals
from .script import moved_source
from .script.imports import when_imported
from .start_up.start_up import StartUp


def install(control: str) -> None:
    """Starts the agent. `control` is the folder that the launcher prepared for this run."""
    mark(control, "loaded")
    take_signals(control)
    moved_source.follow()
    start_up = StartUp()

    def torch_imported(torch: ModuleType) -> None:
        mark(control, "torch")
        try:
            from .script.hooks import attach

            attach(torch, control, start_up)
        except Exception as error:  # the script must run as it would without traceopt
            mark(control, "failed", f"{type(error).__name__}: {error}")

    when_imported("torch", torch_imported)


def mark(control: str, name: str, text: str = "") -> None:
    """Leaves a marker, once."""
    path = os.path.join(control, name)
    try:
        if not os.path.exists(path):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    except OSError:  # the folder is gone, because the launcher ended before its child
        return
