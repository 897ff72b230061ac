"""The callback for the Hugging Face Trainer. It records steps as `traceopt.profile` does.

from traceopt.huggingface import TraceoptCallback

trainer = Trainer(model, arguments, train_dataset=data, callbacks=[TraceoptCallback("logs")])
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from traceopt.profiling import Training, profile


class TraceoptCallback(TrainerCallback):  # type: ignore[misc]  # mypy does not follow transformers
    """One optimizer update is one step. Same arguments as `traceopt.profile`."""

    def __init__(self, logdir: str | Path, preset: str | None = None, **options: Any) -> None:
        self._profile = profile(logdir, preset, **options)
        self._training = Training(self._profile)

    @property
    def traces(self) -> list[Path]:
        """The files written so far."""
        return self._profile.traces

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self._training.begin()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._profile.step()

    def on_prediction_step(self, *_: Any, **__: Any) -> None:
        """The earliest sign of an evaluation: its first batch has ended."""
        self._profile.interrupt("evaluation")

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self._training.end()
