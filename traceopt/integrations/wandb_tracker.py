"""Logs a result to a W&B run: numbers in its summary, and an artifact with the report and the result document."""

from __future__ import annotations

from typing import Any

import wandb  # pyright: ignore[reportMissingImports]

from traceopt.integrations.tracking import Logged


class WandbTracker:
    """Logs to `run`; by default to the run that `wandb.init()` started in this process."""

    def __init__(self, run: Any = None) -> None:
        self._run = run

    def log(self, logged: Logged) -> None:
        run = self._run or wandb.run
        if run is None:
            raise ValueError("there is no active W&B run: call wandb.init() first, or give WandbTracker a run")
        run.summary.update({**logged.metrics, "traceopt/verdict": logged.verdict})
        artifact = wandb.Artifact(f"traceopt-{run.id}", type="traceopt-report", description=logged.verdict)
        for file in logged.files:
            artifact.add_file(str(file), name=file.name)
        run.log_artifact(artifact)
