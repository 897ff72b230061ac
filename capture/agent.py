"""The agent's way into a process: leaves a marker, and waits for the script to import torch.

It runs at the start of every Python process below `traceopt run`, so it loads next to nothing. Markers in the control
folder: `loaded` (the agent runs), `torch` (torch was imported), `failed` (the agent could not start, and why).
"""

from __future__ import annotations

import os
from types import ModuleType

from .script.imports import when_imported


def install(control: str) -> None:
    """`control` is the folder that the launcher has prepared for this run."""
    mark(control, "loaded")

    def torch_imported(torch: ModuleType) -> None:
        mark(control, "torch")
        try:
            from .script.hooks import attach

            attach(torch, control)
        except Exception as error:  # the script must run as it would without us
            mark(control, "failed", f"{type(error).__name__}: {error}")

    when_imported("torch", torch_imported)


def mark(control: str, name: str, text: str = "") -> None:
    """Leaves a marker, once."""
    path = os.path.join(control, name)
    try:
        if not os.path.exists(path):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    except OSError:  # the folder is gone: the launcher has ended before its child
        return
