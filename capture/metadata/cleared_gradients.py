"""Gradients that a backward pass computes and the script clears before their optimizer reads them."""

from __future__ import annotations

import itertools
import weakref
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from .constructions import built

MOST_OPTIMIZERS = 20
MOST_STEPS = 16  # followed
MOST_PASSES = 64  # followed of one step
MOST_TENSORS = 2000  # whose shapes are written


class ClearedGradients:
    """Backward passes are numbered from 0 in each step. A gradient is cleared if `zero_grad` has set it to None before
    the next backward pass; where gradients are filled with zeros instead, nothing is seen. `active` is whether to tell
    it anything: the first steps show what all steps do.
    """

    def __init__(self, active: bool = True) -> None:
        self.active = active
        self._optimizers: list[_Followed] = []
        self._step = self._number = -1
        self._depth = 0
        self._follows = False  # this pass
        self._runs = defaultdict[int, int](int)  # by number of the pass
        self._passes = defaultdict[int, int](int)  # how many steps have so many

    def backward_begins(self, step: int) -> None:
        """`step`: the current one. Passes inside of others, as of checkpointed layers, are part of those."""
        self._depth += 1
        if self._depth > 1:
            return
        if step != self._step:
            self._passes[self._number + 1] += 1
            self._step, self._number = step, -1
            self.active = sum(self._passes.values()) <= MOST_STEPS
        self._number += 1
        self._follows = len(self._optimizers) > 1 and self._number < MOST_PASSES  # a single one reads all gradients
        if self._follows:
            self._runs[self._number] += self.active
            for optimizer in self._optimizers:
                optimizer.backward_begins()

    def backward_ends(self) -> None:
        self._depth -= 1
        if self._depth == 0 and self._follows:
            for optimizer in self._optimizers:
                optimizer.backward_ends(self._number)

    def read(self, optimizer: Any) -> None:
        """The optimizer has used the gradients of its parameters."""
        for one in self._optimizers:
            if one.optimizer() is optimizer:
                one.was_read()
                return
        if len(self._optimizers) < MOST_OPTIMIZERS:
            with suppress(Exception):  # an object of a class with unusual behavior is left out
                self._optimizers.append(_Followed(optimizer))

    def document(self) -> list[dict[str, Any]]:
        """A row for each pass and optimizer whose gradients were cleared, if the pass also computes gradients that
        another optimizer reads.
        """
        usual = max(self._passes, key=lambda count: self._passes[count], default=0)
        return [
            {
                "backward": number,
                "of": usual,
                "runs": self._runs[number],
                "cleared": cleared,
                "shapes": optimizer.shapes.get(number, []),
                "built": optimizer.built,
            }
            for optimizer in self._optimizers
            for number, cleared in sorted(optimizer.cleared.items())
            if any(other.reads[number] for other in self._optimizers if other is not optimizer)
        ]


class _Followed:
    """An optimizer, followed by one of its parameters. `reads` and `cleared` count by number of the backward pass that
    has computed the gradient, `shapes` are those of the gradients.
    """

    def __init__(self, optimizer: Any) -> None:
        """Raises StopIteration if no parameter has a gradient."""
        self.optimizer = weakref.ref(optimizer)
        self.built = built(optimizer)
        self.reads = defaultdict[int, int](int)
        self.cleared = defaultdict[int, int](int)
        self.shapes: dict[int, list[list[int]]] = {}
        self._parameter = weakref.ref(next(_with_gradient(optimizer)))
        self._version: int | None = None  # of the gradient as the pass begins; None without a gradient
        self._unread: list[int] = []  # passes

    def backward_begins(self) -> None:
        parameter = self._parameter()
        gradient = None if parameter is None else parameter.grad
        self._version = None if gradient is None else gradient._version
        if gradient is None:
            self._count(self.cleared)

    def backward_ends(self, number: int) -> None:
        """A pass that adds to the gradient changes its version."""
        parameter = self._parameter()
        gradient = None if parameter is None else parameter.grad
        if gradient is not None and gradient._version != self._version:
            self._unread.append(number)
            if number not in self.shapes:
                self.shapes[number] = _shapes(self.optimizer())

    def was_read(self) -> None:
        self._count(self.reads)

    def _count(self, passes: dict[int, int]) -> None:
        for number in self._unread:
            passes[number] += 1
        self._unread.clear()


def _with_gradient(optimizer: Any) -> Iterator[Any]:
    """The parameters that have one."""
    return (
        parameter for group in optimizer.param_groups for parameter in group["params"] if parameter.grad is not None
    )


def _shapes(optimizer: Any) -> list[list[int]]:
    if optimizer is None:
        return []
    return [list(one.grad.shape) for one in itertools.islice(_with_gradient(optimizer), MOST_TENSORS)]
