"""Logs a result to TensorBoard: scalars, the verdict as text, and report and result document in the log folder.

TensorBoard has no artifacts, so the files are copied to the folder of its event file.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from traceopt.integrations.tracking import Logged

FOLDER = "runs/traceopt"


class TensorBoardTracker:
    """Writes an event file to `folder`; by default to `runs/traceopt`, where `tensorboard --logdir runs` finds it."""

    def __init__(self, folder: str | Path = FOLDER) -> None:
        self._folder = Path(folder)

    def log(self, logged: Logged) -> None:
        with SummaryWriter(str(self._folder)) as writer:
            for name, value in logged.metrics.items():
                writer.add_scalar(name, value)
            writer.add_text("traceopt/verdict", logged.verdict)
        for file in logged.files:
            shutil.copyfile(file, self._folder / file.name)
