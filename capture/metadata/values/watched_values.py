"""Looks at the tensors of steps that are not recorded: at batches, and at what a backward pass needs."""

from __future__ import annotations

from typing import Any

from .mostly_zero import MostlyZero
from .padding import Padding, whole_numbers
from .saved_tensors import saved_tensors
from .subnormals import Subnormals


class WatchedValues:
    """`hooked`: the script has hooks of its own for saved tensors, so they are not looked at."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.subnormals = Subnormals(torch)
        self.padding = Padding(torch)
        self.mostly_zero = MostlyZero(torch)
        self.hooked = False
        self._loaded = self._activations_seen = False

    @property
    def knows_batches(self) -> bool:
        """Whether another batch would tell nothing new."""
        return self._loaded and self.padding.done

    def fetched(self, batch: Any, collate: Any) -> None:
        """A DataLoader has given this batch, which `collate` has joined."""
        if self._torch.is_grad_enabled():  # else it is of an evaluation
            self._loaded = True
            self.padding.look(batch, collate)

    def backward_begins(self, loss: Any) -> None:
        """Looks at activations once, and at ids as long as no loader gives batches."""
        done = self._activations_seen and (self._loaded or self.padding.done)
        if done or self.hooked or self._torch.cuda.is_initialized():
            return
        tensors = list(saved_tensors(self._torch, loss))
        if not self._loaded:
            self.padding.look(whole_numbers(tensors))
        if not self._activations_seen:
            self._activations_seen = True
            self.subnormals.look("activation", tensors)
            self.mostly_zero.look(tensors)
