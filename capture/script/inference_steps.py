"""The steps of a loop that only calls a model in evaluation mode: each call of the model is one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .dynamo import Dynamo
from .imports import when_imported
from .step_on import telling


class InferenceSteps:
    """Tells `called` when the first model that the script put into evaluation mode returns, until that returns False.
    A model of the same class inside of it is a part of it. `tell(signal)` passes a signal on, whatever happens in
    traceopt. It ends when torch._dynamo is imported: what compiles a model must not find another call there.
    """

    def __init__(self, dynamo: Dynamo, tell: Callable[[Callable[[], None]], None], called: Callable[[], bool]) -> None:
        self._dynamo = dynamo
        self._tell = tell
        self._called = called
        self._begun = False

    def watch(self, model: Any) -> None:
        """Wraps the call of the model's class, so that the model has no hook, which would turn fast paths off."""
        if self._begun or "torch._dynamo" in sys.modules:
            return
        self._begun, kind = True, type(model)
        original, inherited = kind.__call__, "__call__" not in vars(kind)

        def restore(_dynamo: Any = None) -> None:
            if kind.__call__ is call:
                kind.__call__ = original
                if inherited:
                    del kind.__call__

        def ended() -> None:
            if not self._called():
                restore()

        call = telling(original, self._tell, ended, self._dynamo.exclude)
        kind.__call__ = call
        when_imported("torch._dynamo", restore)
