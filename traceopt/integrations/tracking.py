"""Logs a result to an experiment tracker: a few numbers, the result document, and the HTML report.

from traceopt.integrations.tracking import log_result

log_result(traceopt.analyze("logs"), "wandb")
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from traceopt.analysis import Analysis
from traceopt.result.document import Result

DOCUMENT, REPORT = "traceopt-result.json", "traceopt-report.html"

# The trackers that have a name, and where their classes are. A class is called without arguments.
TRACKERS = {
    "wandb": ("traceopt.integrations.wandb_tracker", "WandbTracker"),
    "mlflow": ("traceopt.integrations.mlflow_tracker", "MlflowTracker"),
    "tensorboard": ("traceopt.integrations.tensorboard_tracker", "TensorBoardTracker"),
}


class Logged(Struct, frozen=True):
    """What a tracker receives. `files` are the result document and the report, in a folder that is removed later."""

    metrics: Mapping[str, float]
    verdict: str
    files: Sequence[Path]


class Tracker(Protocol):
    """An experiment tracker."""

    def log(self, logged: Logged) -> None:
        """Raises ValueError if there is no run to log to, ImportError if its package is missing."""


def check_name(name: str) -> None:
    """Raises ValueError if no tracker has this name."""
    if name not in TRACKERS:
        raise ValueError(f"unknown tracker {name!r}; known: {', '.join(TRACKERS)}")


def log_result(result: Result, to: str | Tracker) -> None:
    """Logs the metrics of a result, and the result document and the HTML report as files.

    `to`: "wandb", "mlflow", "tensorboard", or a `WandbTracker`, `MlflowTracker` or `TensorBoardTracker` for a certain
    run or folder. The first two log to the run that is active in this process.

    Raises ValueError if the name is unknown or there is no run to log to, ImportError if the package is missing.
    """
    receiver = _named(to) if isinstance(to, str) else to
    with tempfile.TemporaryDirectory(prefix="traceopt-") as folder:
        document, report = Path(folder) / DOCUMENT, Path(folder) / REPORT
        document.write_bytes(result.to_json())
        report.write_text(Analysis.of(result).to_html(), encoding="utf-8")
        receiver.log(Logged(metrics(result), result.verdict, [document, report]))


def metrics(result: Result) -> dict[str, float]:
    """The numbers worth comparing between runs. What was not measured is left out. The unit is in the name."""
    combined = result.combined
    measured = {
        "step_ms": _ms(result.step.typical_us),
        "gpu_busy_share": result.gpu.busy_share,
        "dataloader_stall_ms_per_step": _ms(result.dataloader.stall_us_per_step),
        "sync_stall_ms_per_step": _ms(result.sync.stall_us_per_step),
        "exposed_communication_ms_per_step": _ms(result.communication.exposed_us_per_step),
        "tensor_core_share": result.tensor_cores.used_share,
        "mfu": result.efficiency.mfu,
        "peak_allocated_bytes": result.memory.peak_allocated_bytes,
        "findings": len(result.findings),
        "plan_saving_ms_per_step": None if combined is None else _ms(combined.saving_us),
        "plan_saving_share": None if combined is None else combined.share,
    }
    return {f"traceopt/{name}": float(value) for name, value in measured.items() if value is not None}


def _named(name: str) -> Tracker:
    check_name(name)
    module, class_name = TRACKERS[name]
    found: Tracker = getattr(import_module(module), class_name)()
    return found


def _ms(us: float | None) -> float | None:
    return None if us is None else us / 1000
