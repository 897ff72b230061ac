#!/usr/bin/env python3
"""Trains a line, with a module that is found through PYTHONPATH in the user's folder and not in the copy."""

import os

import torch
from library import WIDTH
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


def main() -> None:
    model = torch.nn.Linear(WIDTH, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(400, WIDTH))
    for (batch,) in DataLoader(data, batch_size=4, shuffle=True):
        for part in batch.split(2):  # two micro-batches
            model(part).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    raise RuntimeError("the run did not end by itself: " + os.getcwd())


if __name__ == "__main__":
    main()
