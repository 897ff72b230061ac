"""Keeps torch.compile away from traceopt's wrappers: Dynamo must not compile them or break graphs at them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any, TypeVar

from .imports import when_imported

Wrapped = TypeVar("Wrapped", bound=Callable[..., Any])

_COMPILING = ("optimize", "optimize_assert", "export")  # of torch._dynamo: nothing is compiled before one is called


def has_compiled() -> bool:
    """Whether something asked Dynamo to compile; also where this torch does not tell."""
    module = sys.modules.get("torch._dynamo.eval_frame")
    return module is not None and bool(getattr(module, "cached_backends", True))


def before_compiling(act: Callable[[], None]) -> None:
    """Calls `act` before something is compiled. That torch._dynamo is imported says nothing: the profiler does it."""

    def watch(module: ModuleType) -> None:
        originals = {name: vars(module)[name] for name in _COMPILING if name in vars(module)}

        def acting(original: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(original)
            def call(*args: Any, **kwargs: Any) -> Any:
                vars(module).update(originals)
                act()
                return original(*args, **kwargs)

            return call

        vars(module).update({name: acting(original) for name, original in originals.items()})

    when_imported("torch._dynamo", watch)


class Dynamo:
    """Torch's frame evaluator, which exists whether or not torch._dynamo is imported."""

    def __init__(self, torch: Any, note: Callable[[str], None]) -> None:
        self._note = note
        self._evaluator = torch._C._dynamo.eval_frame
        self._is_old = hasattr(self._evaluator, "skip_code")  # torch 2.1
        compiling: Callable[[], bool] = (
            getattr(getattr(torch, "compiler", None), "is_compiling", None)
            or getattr(torch._utils, "is_compiling", None)  # torch 2.1
            or (lambda: False)
        )
        self.is_compiling: Callable[[], bool] = self.exclude(lambda: compiling(), with_callees=True)
        self.exclude(Dynamo.pause)

    def exclude(self, function: Wrapped, *, with_callees: bool = False) -> Wrapped:
        """Tells Dynamo not to compile the frame of this function, and with `with_callees` not the functions that it
        calls. Without, it is a wrapper, and warnings skip it as well.
        """
        if not with_callees:
            function.__code__ = _skipped_by_warnings(function.__code__)
        code = function.__code__
        try:
            if self._is_old:
                self._evaluator.skip_code(code)
            else:
                action = self._evaluator._FrameAction
                below = action.SKIP if with_callees else action.DEFAULT
                self._evaluator.set_code_exec_strategy(code, self._evaluator._FrameExecStrategy(action.SKIP, below))
        except AttributeError as error:
            self._note(f"torch.compile may see traceopt's wrappers: {error}")
        return function

    def pause(self) -> Any:
        """If callees cannot be excluded, stops all compilation from here on; pass the result to `resume`."""
        return self._evaluator.set_eval_frame(None) if self._is_old else None

    def resume(self, paused: Any) -> None:
        if self._is_old:
            self._evaluator.set_eval_frame(paused)


def _skipped_by_warnings(code: CodeType) -> CodeType:
    """A warning from inside the wrapped function must name the line that it would name without the wrapper.

    Python passes over frames of importlib when it counts a warning's `stacklevel`, and knows them by their file name.
    """
    return code.replace(co_filename=f"{code.co_filename} <importlib._bootstrap>")
