"""Gradients that a backward pass computes and the script clears before their optimizer reads them."""

from __future__ import annotations

import itertools
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from .constructions import built

MOST_OPTIMIZERS = 20
MOST_PASSES = 64  # followed of one step
MOST_TENSORS = 2000  # whose shapes are written


class ClearedGradients:
    """Backward passes are numbered from 0 in each step. A gradient is cleared if `zero_grad` has set it to None before
    the next backward pass; where gradients are filled with zeros instead, nothing is seen.
    """

    def __init__(self) -> None:
        self._optimizers: list[_Followed] = []
        self._step = self._number = -1
        self._depth = 0
        self._runs: Counter[int] = Counter()  # by number of the pass
        self._passes: Counter[int] = Counter()  # of a step

    def backward_begins(self, step: int) -> None:
        """`step`: the current one. Passes inside of others, as of checkpointed layers, are part of those."""
        self._depth += 1
        if self._depth > 1:
            return
        if step != self._step:
            self._passes[self._number + 1] += 1
            self._step, self._number = step, -1
        self._number += 1
        if self._follows:
            self._runs[self._number] += 1
            for one in self._optimizers:
                one.backward_begins()

    def backward_ends(self) -> None:
        self._depth -= 1
        if self._depth == 0 and self._follows:
            for one in self._optimizers:
                one.backward_ends(self._number)

    @property
    def _follows(self) -> bool:
        """A single optimizer reads all gradients."""
        return len(self._optimizers) > 1 and self._number < MOST_PASSES

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
                "shapes": one.shapes.get(number, []),
                "built": one.built,
            }
            for one in self._optimizers
            for number, cleared in sorted(one.cleared.items())
            if any(other.reads[number] for other in self._optimizers if other is not one)
        ]


class _Followed:
    """An optimizer, followed by one of its parameters. `reads` and `cleared` count by number of the backward pass that
    has computed the gradient, `shapes` are those of the gradients.
    """

    def __init__(self, optimizer: Any) -> None:
        """Raises StopIteration if no parameter has a gradient."""
        self.optimizer = weakref.ref(optimizer)
        self.built = built(optimizer)
        self.reads: Counter[int] = Counter()
        self.cleared: Counter[int] = Counter()
        self.shapes: dict[int, list[list[int]]] = {}
        self._parameter = weakref.ref(next(_with_gradient(optimizer)))
        self._state = self._gradient_state()
        self._unread: list[int] = []  # passes

    def backward_begins(self) -> None:
        self._state = self._gradient_state()
        if self._state is None:
            self.cleared.update(self._unread)
            self._unread.clear()

    def backward_ends(self, number: int) -> None:
        state = self._gradient_state()
        if state is not None and state != self._state:
            self._unread.append(number)
            if number not in self.shapes:
                self.shapes[number] = _shapes(self.optimizer())

    def was_read(self) -> None:
        self.reads.update(self._unread)
        self._unread.clear()

    def _gradient_state(self) -> tuple[int, int] | None:
        """Changes whenever a backward pass adds to the gradient; None without a gradient."""
        parameter = self._parameter()
        gradient = parameter.grad if parameter is not None else None
        return None if gradient is None else (id(gradient), gradient._version)


def _with_gradient(optimizer: Any) -> Iterator[Any]:
    """The parameters that have one."""
    return (one for group in optimizer.param_groups for one in group["params"] if one.grad is not None)


def _shapes(optimizer: Any) -> list[list[int]]:
    if optimizer is None:
        return []
    return [list(one.grad.shape) for one in itertools.islice(_with_gradient(optimizer), MOST_TENSORS)]
