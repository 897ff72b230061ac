#!/usr/bin/env python3
"""Trains a line, with a module that is found through PYTHONPATH in the user's folder and not in the copy.

It reduces gradients in each micro-batch and saves in each step, as the settings can change both.
"""

import os

import torch
from library import WIDTH  # pyright: ignore[reportMissingImports]
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


def main() -> None:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    model = DistributedDataParallel(torch.nn.Linear(WIDTH, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(400, WIDTH))
    for (batch,) in DataLoader(data, batch_size=4, shuffle=True):
        for part in batch.split(2):  # two micro-batches
            model(part).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.save(model.state_dict(), "latest.pt")
    raise RuntimeError("the run did not end by itself: " + os.getcwd())


if __name__ == "__main__":
    main()
