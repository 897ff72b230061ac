"""Gradient accumulation with DistributedDataParallel that reduces gradients in the last pass of each update only.

How many passes an update has is learned from the first updates. As long as it varies, or with a second model, every
pass reduces.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from ..dynamo import Dynamo
from ..imports import when_imported

SWITCH = "reduce_once"


class Passes:
    """Counts the forward passes between updates, and tells the model whether the backward pass will reduce."""

    def __init__(self, used: Callable[[str], None]) -> None:
        self._used = used
        self._model: Any = None
        self._several_models = False
        self._done = 0
        self._in_last_update = 0
        self._usual: int | None = None  # known once two updates in a row had the same number

    def forward_begins(self, model: Any) -> None:
        self._several_models |= self._model is not None and self._model is not model
        self._model = model
        self._done += 1
        skips = self._usual is not None and self._done < self._usual and not self._several_models
        model.require_backward_grad_sync = not skips  # as no_sync() does
        if skips:
            self._used(SWITCH)

    def updated(self) -> None:
        """A second optimizer of the same update has no pass of its own."""
        if self._done:
            self._usual = self._done if self._done == self._in_last_update else None
            self._in_last_update, self._done = self._done, 0


def turn_on(torch: Any, used: Callable[[str], None], dynamo: Dynamo) -> None:
    module = sys.modules["torch.optim.optimizer"]  # torch.optim has no such attribute
    add_hook = getattr(module, "register_optimizer_step_post_hook", None)
    if add_hook is None:
        return
    passes = Passes(used)
    add_hook(dynamo.exclude(lambda *_: passes.updated(), with_callees=True))

    def begins(model: Any, _: Any) -> None:
        if model.training and torch.is_grad_enabled():
            passes.forward_begins(model)

    dynamo.exclude(begins, with_callees=True)

    def watch(distributed: Any) -> None:
        kind = distributed.DistributedDataParallel
        construct = kind.__init__

        @functools.wraps(construct)
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            construct(self, *args, **kwargs)
            self.register_forward_pre_hook(begins)

        kind.__init__ = init

    when_imported("torch.nn.parallel.distributed", watch)
