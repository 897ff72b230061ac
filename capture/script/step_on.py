"""The calls that the user names with --step-on: a step ends when one returns."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from ..recording.recorder import Recorder
from .dynamo import Dynamo
from .imports import when_imported
from .step_tracker import StepTracker

Call = Callable[..., Any]


def telling(call: Call, tell: Callable[[Call], None], signal: Call, exclude: Call) -> Call:
    """The call of a module that also tells a signal when the outermost module returns."""
    depth = 0

    @functools.wraps(call)
    @exclude
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:  # the profiler takes the module from `self`
        nonlocal depth
        depth += 1
        try:
            return call(self, *args, **kwargs)
        finally:
            depth -= 1
            if not depth:
                tell(signal)

    return wrapper


class GivenSteps:
    """`tell(signal)` passes a signal on, whatever happens in traceopt."""

    def __init__(
        self,
        torch: Any,
        recorder: Recorder,
        tracker: StepTracker,
        dynamo: Dynamo,
        tell: Callable[[Callable[[], None]], None],
    ) -> None:
        self._module = torch.nn.Module
        self._recorder = recorder
        self._ended = tracker.marked
        self._exclude = dynamo.exclude
        self._tell = tell

    def watch(self, step_on: str) -> None:
        module, colon, function = step_on.partition(":")
        if step_on == "forward":
            self._watch_forward()
        elif module == "__main__":
            self._watch_for_function_of_script(function)
        elif colon:
            when_imported(module, lambda loaded: self._watch_function(loaded, function))

    def _watch_forward(self) -> None:
        """Each call of the outermost module is a step. Only on request, because it wraps the call of every module."""
        self._module.__call__ = telling(self._module.__call__, self._tell, self._ended, self._exclude)

    def _watch_for_function_of_script(self, path: str) -> None:
        """Nothing signals that the script has defined the function, so every call of a module looks for it until it
        exists.
        """
        original = self._module.__call__

        def find() -> None:
            script = sys.modules["__main__"]
            if hasattr(script, path.partition(".")[0]):
                self._module.__call__ = original
                self._watch_function(script, path)

        tell = self._tell

        @functools.wraps(original)
        @self._exclude
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:  # the profiler takes the module from `self`
            tell(find)
            return original(self, *args, **kwargs)

        self._module.__call__ = call

    def _watch_function(self, module: Any, path: str) -> None:
        """`path` is `function` or `Class.method` of the module."""
        *owners, name = path.split(".")
        try:
            owner = functools.reduce(getattr, owners, module)
            original = getattr(owner, name)
        except AttributeError as error:
            self._recorder.status.trouble(f"--step-on {module.__name__}:{path}: {error}")
            return

        @functools.wraps(original)
        @self._exclude
        def function(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            finally:
                self._tell(self._ended)

        setattr(owner, name, function)
