"""What a program without training steps does again and again, from its sampled stacks: a step for `--step-on`."""

from __future__ import annotations

import dis
import functools
import inspect
import itertools
import sys
from collections import defaultdict
from collections.abc import Sequence
from types import CodeType, ModuleType
from typing import Any

from ..metadata.user_line import is_user_code
from .stack_sampler import Stack

MOST = 0.5  # of the sampled time: a function that takes less is no step

_DECORATOR = "torch/utils/_contextlib.py"  # of torch.no_grad
_MODULE_CALL = "torch/nn/modules/module.py"


def step_among(stacks: Sequence[tuple[Stack, float]]) -> str | None:
    """What `--step-on` may name: `module:function`, or "forward" if a loop calls a model. Of nested loops the outermost
    one counts. None if no loop of the user's code takes most of the time.
    """
    seconds = defaultdict[str, float](float)
    for stack, took_s in stacks:
        called = _called_in_loop(stack)
        if called is not None:
            seconds[called] += took_s
    most = MOST * sum(took_s for _, took_s in stacks)
    return next((step for step, took_s in seconds.items() if took_s > most), None)


def _called_in_loop(stack: Stack) -> str | None:
    frames = [frame for frame in zip(*stack, strict=True) if not frame[0].co_filename.endswith(_DECORATOR)]
    frames.reverse()
    for (caller, at), (called, _) in itertools.pairwise(frames):
        if is_user_code(caller.co_filename) and _is_in_loop(caller, at):
            name = _name(called)
            if name is not None:
                return name
    return None


@functools.cache
def _name(code: CodeType) -> str | None:
    if code.co_filename.endswith(_MODULE_CALL):
        return "forward"
    if not is_user_code(code.co_filename):
        return None
    path = getattr(code, "co_qualname", code.co_name)  # Python 3.10 has no qualified names
    found = (name for name, module in list(sys.modules.items()) if _code_of(module, path) is code)
    name = next(found, None)
    return f"{name}:{path}" if name is not None else None


def _code_of(module: ModuleType, path: str) -> CodeType | None:
    """The code of a function of the module; None if it has none of that name. A script's file is unknown at its end."""
    function: Any = module
    for name in path.split("."):
        function = vars(function).get(name) if hasattr(function, "__dict__") else None
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    return code if isinstance(code, CodeType) else None


@functools.cache
def _is_in_loop(code: CodeType, at: int) -> bool:
    """Whether a later instruction jumps back to this one, or to one before it."""
    jumps = (
        instruction
        for instruction in dis.get_instructions(code)
        if instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs
    )
    return any(jump.argval <= at < jump.offset for jump in jumps)
