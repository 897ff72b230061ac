"""Notices when the script puts a model into evaluation mode, and back into training mode."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from .dynamo import Dynamo
from .step_tracker import StepTracker


class EvaluationMode:
    """Module.train() calls itself for every submodule, so it is wrapped only from eval() to the next train().
    `evaluated` gets each model that is put into evaluation mode.
    """

    def __init__(
        self,
        torch: Any,
        tracker: StepTracker,
        dynamo: Dynamo,
        note: Callable[[str], None],
        evaluated: Callable[[Any], None] = lambda _model: None,
    ) -> None:
        self._torch = torch
        self._module = torch.nn.Module
        self._tracker = tracker
        self._dynamo = dynamo
        self._note = note
        self._evaluated = evaluated
        self._train = self._module.train
        self._model: Callable[[], Any] = lambda: None  # the one that is in evaluation mode, if it still exists
        self._watcher = self._watched(self._train)
        for method in (EvaluationMode._evaluates, EvaluationMode._unwatch, EvaluationMode._trains):
            dynamo.exclude(method, with_callees=True)

    def watch(self) -> None:
        original, evaluates, is_compiling = self._module.eval, self._evaluates, self._dynamo.is_compiling

        @functools.wraps(original)
        @self._dynamo.exclude
        def evaluate(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            if not is_compiling():
                evaluates(self)
            return result

        self._module.eval = evaluate

    def _watched(self, original: Callable[..., Any]) -> Callable[..., Any]:
        unwatch, trains, is_compiling = self._unwatch, self._trains, self._dynamo.is_compiling

        @functools.wraps(original)
        @self._dynamo.exclude
        def train(self: Any, mode: bool = True) -> Any:
            if not mode or is_compiling():
                return original(self, mode)
            unwatch()
            result = original(self, mode)
            trains()
            return result

        return train

    def _evaluates(self, model: Any) -> None:
        try:
            if self._model() is None or self._module.train is not self._watcher:
                self._model = weakref.ref(model)
            if self._module.train is self._train:
                self._module.train = self._watcher
            self._tracker.evaluation_mode(self._torch.is_grad_enabled())
            self._evaluated(model)
        except Exception as error:
            self._note(f"evaluations are not counted: {type(error).__name__}: {error}")

    def _unwatch(self) -> None:
        if self._module.train is self._watcher:
            self._module.train = self._train

    def _trains(self) -> None:
        """A model was put into training mode: perhaps the one in evaluation mode, or one that contains it."""
        try:
            model = self._model()
            self._model = lambda: None
            if model is not None and model.training:
                self._tracker.training_mode()
        except Exception as error:
            self._note(f"evaluations are not counted: {type(error).__name__}: {error}")
