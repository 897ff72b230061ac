"""Several processes that train together: python ranks.py KIND, or torchrun ranks.py launched."""

from __future__ import annotations

import os
import sys
import tempfile
import time

import torch
from torch import distributed, multiprocessing, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from true_steps import seed_everything, true_step

RANKS = 2


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(480, 16, generator=generator), torch.randint(0, 4, (480,), generator=generator))


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))


def train(rank: int) -> None:
    """DistributedDataParallel with two epochs; rank 1 has more to do."""
    seed_everything()
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    sampler = DistributedSampler(data(), RANKS, rank)
    loader = DataLoader(data(), batch_size=8, sampler=sampler)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            if rank == 1:
                time.sleep(0.01)  # planted
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            true_step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.6f}", flush=True)


def launched() -> None:
    distributed.init_process_group("gloo")
    train(distributed.get_rank())
    distributed.destroy_process_group()


def spawned() -> None:
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(start_rank, (os.path.join(folder, "ranks"),), nprocs=RANKS)


def start_rank(rank: int, meeting_point: str) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{meeting_point}", rank=rank, world_size=RANKS)
    train(rank)
    distributed.destroy_process_group()


def hogwild() -> None:
    """Processes that update the same weights without locks; then the parent tests them."""
    model = network()
    model.share_memory()
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=update_shared, args=(rank, model)) for rank in range(RANKS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    model.eval()
    with torch.no_grad():
        tested = sum(len(model(x)) for x, _ in DataLoader(data(), batch_size=32))
    print(f"tested on {tested}, exit codes {[process.exitcode for process in processes]}")


def update_shared(rank: int, model: nn.Module) -> None:
    seed_everything(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in DataLoader(data(), batch_size=8, shuffle=True):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        true_step()


if __name__ == "__main__":
    {kind.__name__: kind for kind in (launched, spawned, hogwild)}[sys.argv[1]]()
