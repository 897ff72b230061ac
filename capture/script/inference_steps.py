"""The steps of a loop that only calls a model in evaluation mode: each call of the model is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .dynamo import Dynamo, before_compiling, has_compiled
from .step_on import telling


class InferenceSteps:
    """Tells `called` when the first model that the script put into evaluation mode returns, until that returns False.
    A model of the same class inside of it is a part of it. `tell(signal)` passes a signal on, whatever happens in
    traceopt. It ends before something is compiled: Dynamo must not find another call there.
    """

    def __init__(self, dynamo: Dynamo, tell: Callable[[Callable[[], None]], None], called: Callable[[], bool]) -> None:
        self._dynamo = dynamo
        self._tell = tell
        self._called = called
        self._begun = False

    def watch(self, model: Any) -> None:
        """Wraps the call of the model's class, so that the model has no hook, which would turn fast paths off."""
        if self._begun or has_compiled():
            return
        self._begun, kind = True, type(model)
        original, inherited = kind.__call__, "__call__" not in vars(kind)

        def restore() -> None:
            if kind.__call__ is call:
                kind.__call__ = original
                if inherited:
                    del kind.__call__

        def ended() -> None:
            if not self._called():
                restore()

        call = telling(original, self._tell, ended, self._dynamo.exclude)
        kind.__call__ = call
        before_compiling(restore)
