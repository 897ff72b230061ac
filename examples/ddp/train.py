#!/usr/bin/env python3
"""Trains a classifier of tabular data with DistributedDataParallel on two processes, with gradient accumulation.

torchrun --standalone --nproc-per-node 2 train.py
"""

from __future__ import annotations

import argparse
import os

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

FEATURES, WIDTH, CLASSES, BATCH, MICRO_BATCHES = 256, 1024, 10, 64, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()

    on_gpu = torch.cuda.is_available() and torch.cuda.device_count() >= int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    distributed.init_process_group("nccl" if on_gpu else "gloo")
    torch.manual_seed(0)
    features = torch.randn(64 * BATCH, FEATURES)
    labels = features[:, :CLASSES].argmax(dim=1)
    data = TensorDataset(features, labels)
    loader = DataLoader(data, BATCH, sampler=DistributedSampler(data), num_workers=0)
    layers = [nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES)]
    model = DistributedDataParallel(nn.Sequential(*layers).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)

    micro_batches = 0
    while micro_batches < options.steps * MICRO_BATCHES:
        for features, labels in loader:
            loss = nn.functional.cross_entropy(model(features.to(device)), labels.to(device)) / MICRO_BATCHES
            loss.backward()
            micro_batches += 1
            if micro_batches % MICRO_BATCHES:
                continue
            optimizer.step()
            optimizer.zero_grad()
            if micro_batches == options.steps * MICRO_BATCHES:
                break
    if distributed.get_rank() == 0:
        print(f"loss {loss.item() * MICRO_BATCHES:.3f}")


if __name__ == "__main__":
    main()
    distributed.destroy_process_group()  # after the model is gone: its last reference to the group can make gloo hang
