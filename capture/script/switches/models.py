"""Settings of models: torch.compile, and filters in channels_last.

A model is a module that is part of no other one, and trains. What the script compiles itself stays as it is.
"""

from __future__ import annotations

import sys
from typing import Any

from ...metadata.inventory import roots_of
from ...recording.timed_steps import TimedSteps
from ..dynamo import Dynamo

COMPILE, CHANNELS_LAST = "compile", "channels_last"


def turn_on(torch: Any, timed: TimedSteps, dynamo: Dynamo) -> None:
    if COMPILE in timed.switches and hasattr(torch.nn.Module, "compile"):
        _compile_after_the_first_update(torch, timed, dynamo)
    if timed.switches.get(CHANNELS_LAST):
        _convert_for_each_optimizer(torch, timed, dynamo)


def _compile_after_the_first_update(torch: Any, timed: TimedSteps, dynamo: Dynamo) -> None:
    """By then the script has built and wrapped all that it trains. `switches[COMPILE]`: arguments of torch.compile."""

    compiled = []

    def first_update(*_: Any) -> None:
        handle.remove()
        for model in roots_of(torch):
            if _has_gradients(model) and not _is_compiled(model):
                _compile(torch, model, timed.switches[COMPILE])
                compiled.append(model)

    def note_use() -> None:
        counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
        if compiled and counters.get("stats", {}).get("unique_graphs"):
            timed.used(COMPILE)

    dynamo.exclude(first_update, with_callees=True)
    hooks = sys.modules["torch.optim.optimizer"]  # torch.optim has no such attribute
    handle: Any = hooks.register_optimizer_step_post_hook(first_update)
    timed.at_settled.append(note_use)


def _compile(torch: Any, model: Any, arguments: dict[str, Any]) -> None:
    """As model.compile(**arguments), which leaves a module as it is whose class is torch's own, such as Sequential."""
    call = model._call_impl

    def forward(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    model._compiled_call_impl = torch.compile(forward, **arguments)


def _has_gradients(model: Any) -> bool:
    return any(parameter.grad is not None for parameter in model.parameters())


def _is_compiled(model: Any) -> bool:
    return any(type(module).__name__ == "OptimizedModule" or module._compiled_call_impl for module in model.modules())


def _convert_for_each_optimizer(torch: Any, timed: TimedSteps, dynamo: Dynamo) -> None:
    """Before the first update, so that the state of the optimizer has the same layout as the filters."""
    kind = torch.optim.Optimizer
    construct = kind.__init__

    @dynamo.exclude
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        own = {id(one) for group in self.param_groups for one in group["params"]}
        for model in roots_of(torch):
            filters = [parameter for parameter in model.parameters() if parameter.dim() == 4 and id(parameter) in own]
            if filters and not _wraps_distributed(model):
                before = [weight.stride() for weight in filters]
                model.to(memory_format=torch.channels_last)
                if [weight.stride() for weight in filters] != before:
                    timed.used(CHANNELS_LAST)

    kind.__init__ = init


def _wraps_distributed(model: Any) -> bool:
    """Such a wrapper has buckets with the layout of the gradients, which cannot change any more."""
    kinds = {type(module) for module in model.modules()}
    return any(kind.__module__.startswith("torch.") and "Parallel" in kind.__name__ for kind in kinds)
