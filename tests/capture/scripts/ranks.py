"""Two ranks of DistributedDataParallel over gloo, for torchrun."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed import destroy_process_group, get_rank, init_process_group
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

init_process_group("gloo")
model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)))
optimizer = torch.optim.AdamW(model.parameters())
data = TensorDataset(torch.randn(200, 16))
for (x,) in DataLoader(data, batch_size=4, sampler=DistributedSampler(data)):
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()
if get_rank() == 0:
    print("both done")
destroy_process_group()
