"""The callback for the Hugging Face Trainer. It records steps as `traceopt.profile` does.

from traceopt.huggingface import TraceoptCallback

trainer = Trainer(model, arguments, train_dataset=data, callbacks=[TraceoptCallback("logs")])
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from traceopt.integrations.training import Training

if TYPE_CHECKING:
    from traceopt.integrations.tracking import Tracker


class TraceoptCallback(TrainerCallback):  # type: ignore[misc]  # mypy does not follow transformers
    """One optimizer update is one step. Same arguments as `traceopt.profile`.

    `log_to`: analyze the recording when training ends, and log the result to "wandb", "mlflow" or "tensorboard".
    """

    def __init__(
        self, logdir: str | Path, preset: str | None = None, *, log_to: str | Tracker | None = None, **options: Any
    ) -> None:
        self._training = Training(logdir, preset, log_to=log_to, **options)

    @property
    def traces(self) -> list[Path]:
        """The files written so far."""
        return self._training.traces

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self._training.begin()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._training.step()

    def on_prediction_step(self, *_: Any, **__: Any) -> None:
        """The earliest sign of an evaluation: its first batch has ended."""
        self._training.interrupt("evaluation")

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self._training.end()
