"""The parts of a run's start-up, as traceopt names them, in words."""

from __future__ import annotations

from typing import get_args

from traceopt.result.sections.companions import StartUpPartName

SAMPLED: tuple[StartUpPartName, ...] = get_args(StartUpPartName)[:-2]  # those that a recording names

START_UP_LABELS: dict[StartUpPartName, str] = {
    "imports": "Imports",
    "downloads": "Downloads",
    "data": "Data set and tokenization",
    "model": "Model construction",
    "checkpoint": "Checkpoint loading",
    "device": "Device initialization",
    "process_group": "Process group",
    "compilation": "Compilation",
    "first_batch": "First batch",
    "first_step": "First step",
    "other": "Other code",
    "python": "Start of Python",
    "unsampled": "Not sampled",
}
