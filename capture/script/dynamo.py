"""Keeps torch.compile away from what is ours: Dynamo must compile none of our frames, and break no graph at one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


class Dynamo:
    """The frame evaluator of torch, which is there whether or not torch._dynamo is imported."""

    def __init__(self, torch: Any, note: Callable[[str], None]) -> None:
        self._note = note
        self._evaluator = torch._C._dynamo.eval_frame
        self._is_old = hasattr(self._evaluator, "skip_code")  # torch 2.1
        compiling: Callable[[], bool] = (
            getattr(getattr(torch, "compiler", None), "is_compiling", None)
            or getattr(torch._utils, "is_compiling", None)  # torch 2.1
            or (lambda: False)
        )
        self.is_compiling: Callable[[], bool] = self.plain(lambda: compiling(), with_callees=True)
        self.plain(Dynamo.pause)

    def plain(self, function: Function, *, with_callees: bool = False) -> Function:
        """Tells Dynamo not to compile the frame of this function; it may compile what is called in it, or may not."""
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
        """Where callees cannot be left alone, compiles nothing from here on; give `resume` what this returns."""
        return self._evaluator.set_eval_frame(None) if self._is_old else None

    def resume(self, paused: Any) -> None:
        if self._is_old:
            self._evaluator.set_eval_frame(paused)
