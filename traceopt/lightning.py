"""The callback for the Lightning Trainer. It records steps as `traceopt.profile` does.

from traceopt.lightning import TraceoptCallback

trainer = Trainer(callbacks=[TraceoptCallback("logs")])
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceopt.integrations.training import Training

if TYPE_CHECKING:
    from traceopt.integrations.tracking import Tracker


def _callback_class() -> Any:
    """The Callback class of the Lightning package that the script has imported, or else of the installed one."""
    names = ("lightning.pytorch", "pytorch_lightning")
    known = [name for name in names if name in sys.modules]
    installed = [name for name in names if find_spec(name.partition(".")[0]) is not None]
    return import_module([*known, *installed, names[0]][0]).Callback


class TraceoptCallback(_callback_class()):  # type: ignore[misc]  # mypy does not follow lightning
    """One step is all optimizer updates of one batch, at least one. Same arguments as `traceopt.profile`.

    `log_to`: analyze the recording when training ends, and log the result to "wandb", "mlflow" or "tensorboard".
    """

    def __init__(
        self, logdir: str | Path, preset: str | None = None, *, log_to: str | Tracker | None = None, **options: Any
    ) -> None:
        self._training = Training(logdir, preset, log_to=log_to, **options)
        self._updates = 0

    @property
    def traces(self) -> list[Path]:
        """The files written so far."""
        return self._training.traces

    def on_train_start(self, trainer: Any, *_: Any) -> None:
        self._updates = trainer.global_step
        self._training.begin()

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step > self._updates:
            self._updates = trainer.global_step
            self._training.step()

    def on_validation_start(self, *_: Any) -> None:
        self._training.interrupt("validation")

    def on_validation_end(self, *_: Any) -> None:
        """The validation lasted until now."""
        self._training.interrupt("validation")

    def on_train_end(self, *_: Any) -> None:
        self._training.end()

    def on_exception(self, *_: Any) -> None:
        self._training.end()
