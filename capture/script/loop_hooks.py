"""Detects the steps of a loop that runs in this process now, such as a notebook cell, and then removes its hooks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..recording.recorder import Recorder
from .evaluation_mode import EvaluationMode
from .hooks import Hooks
from .step_tracker import Listener, StepTracker


class LoopTracker(StepTracker):
    """Counts an update at the next call, because torch calls its hooks inside the range of optimizer.step(), and a step
    must not end inside a range.
    """

    def __init__(self, listener: Listener) -> None:
        super().__init__(listener)
        self.returned: list[int] = []  # optimizers whose step() has returned since the last call

    def count_updates(self) -> None:
        returned, self.returned = self.returned, []
        for optimizer in returned:
            self.update(optimizer)

    def fetch(self, loader: int, gradients: bool = True) -> None:
        self.count_updates()
        super().fetch(loader, gradients)

    def evaluation_mode(self, gradients: bool) -> None:
        self.count_updates()
        super().evaluation_mode(gradients)

    def backward_begins(self) -> None:
        self.count_updates()
        super().backward_begins()

    def backward_ends(self) -> None:
        self.count_updates()
        super().backward_ends()

    def zero_grad(self) -> None:
        self.count_updates()
        super().zero_grad()


@contextmanager
def detected_steps(torch: Any, recorder: Recorder) -> Iterator[None]:
    """Inside the context, the recorder hears of each step that `traceopt run` would find. Afterwards torch is as it was
    before.
    """
    from torch.utils.data import dataloader

    tracker = LoopTracker(recorder)
    hooks = Hooks(torch, recorder, tracker)
    patched = (
        (dataloader.DataLoader, "__init__"),
        (dataloader._BaseDataLoaderIter, "__init__"),
        (dataloader._BaseDataLoaderIter, "__next__"),
        (dataloader._MultiProcessingDataLoaderIter, "__init__"),
        (torch.autograd, "backward"),
        (torch.nn.Module, "eval"),
        (torch.nn.Module, "train"),
        (torch.optim.Optimizer, "zero_grad"),
    )
    before = [(owner, name, getattr(owner, name)) for owner, name in patched]
    updates = _watch_updates(hooks, tracker)
    try:
        hooks.patch_zero_grad()
        hooks.patch_backward()
        hooks.patch_loader(dataloader)
        EvaluationMode(torch, hooks.tracker, hooks.dynamo, recorder.status.note).watch()
        yield
        tracker.count_updates()
    finally:
        for owner, name, original in before:
            setattr(owner, name, original)
        for handle in updates:
            handle.remove()


def _watch_updates(hooks: Hooks, tracker: LoopTracker) -> list[Any]:
    """Torch's hooks for all optimizers: they also see an optimizer that an earlier cell constructed."""
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    is_compiling = hooks.dynamo.is_compiling

    @hooks.dynamo.exclude
    def begins(*_: Any) -> None:
        if not is_compiling():
            tracker.inside_update += 1

    @hooks.dynamo.exclude
    def ends(optimizer: Any, *_: Any) -> None:
        if not is_compiling():
            tracker.inside_update -= 1
            if not tracker.inside_update:
                tracker.returned.append(id(optimizer))

    return [register_optimizer_step_pre_hook(begins), register_optimizer_step_post_hook(ends)]
