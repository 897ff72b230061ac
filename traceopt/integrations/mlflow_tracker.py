"""Logs a result to an MLflow run: metrics, the verdict as a tag, report and result document as artifacts."""

from __future__ import annotations

import mlflow  # pyright: ignore[reportMissingImports]

from traceopt.integrations.tracking import Logged

FOLDER = "traceopt"


class MlflowTracker:
    """Logs to the run with this id; by default to the active run of this process, or else the last one that ended:
    the Hugging Face Trainer ends its run before other callbacks are called.
    """

    def __init__(self, run_id: str | None = None) -> None:
        self._run_id = run_id

    def log(self, logged: Logged) -> None:
        run_id = self._run_id
        if run_id is None:
            run = mlflow.active_run() or mlflow.last_active_run()
            if run is None:
                raise ValueError("there is no MLflow run: call mlflow.start_run(), or give MlflowTracker a run_id")
            run_id = run.info.run_id
        client = mlflow.MlflowClient()
        for name, value in logged.metrics.items():
            client.log_metric(run_id, name, value)
        client.set_tag(run_id, "traceopt.verdict", logged.verdict)
        for file in logged.files:
            client.log_artifact(run_id, str(file), FOLDER)
