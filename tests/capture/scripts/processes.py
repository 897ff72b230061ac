"""Trains alongside other processes: python processes.py fork|spawn|forkserver|children [EPOCHS]."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset[Tensor]):
    """A batch of four takes 20 ms; each item says whether a profiler sees its worker."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Tensor:
        time.sleep(0.005)
        return torch.full((16,), float(sys.getprofile() is not None))


def square(x: int) -> int:
    return x * x


def main(how: str, epochs: int) -> None:
    model = nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    workers = {"num_workers": 2, "multiprocessing_context": how} if how != "children" else {}
    watched = 0.0
    for epoch in range(epochs):
        for x in DataLoader(Slow(), batch_size=4, **workers):
            watched += x.sum().item()
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            optimizer.step()
            if how == "children" and epoch == 0:
                fork()
    if how == "children":
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(pool.map(square, [1, 2, 3]))
    else:
        print("watched", watched)


def fork() -> None:
    """A child that computes and ends like those of multiprocessing."""
    child = os.fork()
    if child == 0:
        torch.ones(4).add(1)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
