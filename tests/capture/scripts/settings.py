"""Small runs with different settings, one function each: python settings.py KIND...

Several kinds run in a process each.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable

import quick_torch  # noqa: F401
import torch
from forked import run_forked
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset[Tensor]):
    """Items that take as long as from a slow disk."""

    def __init__(self, length: int, item_ms: float) -> None:
        self.length, self.item_ms = length, item_ms

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Tensor:
        time.sleep(self.item_ms / 1e3)
        return torch.full((16,), float(index))


class Node:
    """A cycle of two objects, which only the garbage collector can free."""

    def __init__(self) -> None:
        self.other = self


def train(
    loader: DataLoader[Tensor],
    epochs: int = 1,
    after_step: Callable[[], object] = bool,
    width: int = 16,
    activations: int = 1,
) -> None:
    model = nn.Sequential(nn.Linear(16, width), *(nn.ReLU() for _ in range(activations)), nn.Linear(width, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(epochs):
        for x in loader:
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            optimizer.step()
            after_step()


def no_workers() -> None:
    train(DataLoader(Slow(200, 6.0), batch_size=5))


def restarts() -> None:
    """Five epochs of eight steps each, and as many starts of two workers."""
    train(DataLoader(Slow(32, 0.1), batch_size=4, num_workers=2), epochs=5)


def no_restarts() -> None:
    train(DataLoader(Slow(32, 0.1), batch_size=4, num_workers=2, persistent_workers=True), epochs=5)


def debugging() -> None:
    """The output of each node is checked, and it is large."""
    with torch.autograd.set_detect_anomaly(True):
        train(DataLoader(Slow(160, 0.0), batch_size=4), width=20_000, activations=20)


def collector() -> None:
    """Many objects are alive, and the loop collects in every step."""
    alive = [[Node()] for _ in range(100_000)]
    train(DataLoader(Slow(160, 0.0), batch_size=4), after_step=lambda: gc.collect())
    assert len(alive) == 100_000


def contention() -> None:
    """Four threads on one core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(4)
    weight = torch.randn(1024, 1024)
    train(DataLoader(Slow(160, 0.0), batch_size=4), after_step=lambda: weight @ weight)


KINDS: dict[str, Callable[[], None]] = {
    function.__name__: function for function in (no_workers, restarts, no_restarts, debugging, collector, contention)
}

if __name__ == "__main__":
    torch.manual_seed(0)
    if len(sys.argv) == 2:
        KINDS[sys.argv[1]]()
    else:
        run_forked(KINDS, sys.argv[1:])
