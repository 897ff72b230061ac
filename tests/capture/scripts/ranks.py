"""Two ranks of DistributedDataParallel over gloo, from a launcher or forked here: python ranks.py [fork]."""

from __future__ import annotations

import os
import sys
import tempfile

import torch
from torch import multiprocessing, nn
from torch.distributed import destroy_process_group, get_rank, init_process_group
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def train() -> None:
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)))
    optimizer = torch.optim.AdamW(model.parameters())
    data = TensorDataset(torch.randn(200, 16))
    for (x,) in DataLoader(data, batch_size=4, sampler=DistributedSampler(data)):
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()
    if get_rank() == 0:
        print("both done")


def train_in_group() -> None:
    train()
    destroy_process_group()  # after the model is gone: its last reference to the group can make gloo hang


def started(rank: int, meeting_point: str) -> None:
    init_process_group("gloo", init_method=f"file://{meeting_point}", rank=rank, world_size=2)
    train_in_group()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        with tempfile.TemporaryDirectory() as folder:
            meeting_point = os.path.join(folder, "ranks")
            multiprocessing.start_processes(started, (meeting_point,), nprocs=2, start_method="fork")
    else:
        init_process_group("gloo")
        train_in_group()
