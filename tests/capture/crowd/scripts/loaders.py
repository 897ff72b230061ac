"""Loaders with worker processes, and loaders of other libraries: python loaders.py KIND."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter
from true_steps import seed_everything, true_step


class Clips(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, count: int = 240, decode_s: float = 0.002) -> None:
        self.count, self.decode_s = count, decode_s

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:  # planted
        time.sleep(self.decode_s)  # planted
        return torch.full((16,), index / self.count), index % 4


def fit(loader: Any, epochs: int) -> None:
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        for x, y in loader:  # planted
            loss = functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            true_step()
        print(f"epoch {epoch} loss {loss.item():.6f}")


def restarted() -> None:
    """Short epochs, each of which starts its workers anew."""
    fit(DataLoader(Clips(16, 0.0), batch_size=4, num_workers=2), epochs=12)  # planted


def persistent() -> None:
    """One worker that cannot keep up."""
    fit(DataLoader(Clips(120, 0.004), batch_size=4, num_workers=1, persistent_workers=True), epochs=2)


def spawned() -> None:
    """As `persistent`, with a worker that does not inherit the dataset."""
    context = "spawn"
    fit(DataLoader(Clips(240, 0.004), batch_size=4, num_workers=1, multiprocessing_context=context), epochs=1)


class OtherLoader:
    """A loader of another library: torch's iterators go over an object that is no DataLoader."""

    def __init__(self, dataset: Clips) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        return _SingleProcessDataLoaderIter(Imitation(self.dataset))


class Imitation:
    """Has what torch's iterators ask for, and nothing else that a DataLoader has."""

    def __init__(self, dataset: Clips) -> None:
        self._original = DataLoader(dataset, batch_size=4)

    def __getattr__(self, name: str) -> Any:
        if name in ("batch_size", "batch_sampler", "sampler"):
            raise AttributeError(name)
        return getattr(self._original, name)


def imitation() -> None:
    """torch's iterators over a loader that is not torch's."""
    fit(OtherLoader(Clips(240, 0.002)), epochs=1)


if __name__ == "__main__":
    seed_everything()
    {kind.__name__: kind for kind in (restarted, persistent, spawned, imitation)}[sys.argv[1]]()
