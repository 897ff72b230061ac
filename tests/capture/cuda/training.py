"""Trains a small network on the GPU in ways that are hard to record: python training.py KIND."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = 40
BATCH = 64
WIDTH = 256
GPU = "cuda:0"


def batches() -> DataLoader[tuple[Tensor, ...]]:
    data = torch.randn(STEPS * BATCH, WIDTH, generator=torch.Generator().manual_seed(0))
    return DataLoader(TensorDataset(data), batch_size=BATCH, pin_memory=True)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)).to(GPU)


def train(model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for (x,) in batches():
        optimizer.zero_grad()
        loss = model(x.to(GPU, non_blocking=True)).pow(2).mean()
        loss.backward()
        optimizer.step()
    print(loss.item())


def plain() -> None:
    train(network())


def cupti_taken() -> None:
    """CUPTI has one subscriber in a process. Here it is somebody else, as under a vendor's profiler."""
    folder = Path(torch.__file__).parents[1] / "nvidia"
    [path, *_] = [*folder.rglob("libcupti.so*"), *(Path(torch.__file__).parent / "lib").glob("libcupti*.so*")]
    cupti = ctypes.CDLL(str(path))
    signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)
    cupti_taken.callback = signature(lambda *_: None)  # type: ignore[attr-defined]  # kept for the whole run
    subscriber = ctypes.c_void_p()
    print("subscribed:", cupti.cuptiSubscribe(ctypes.byref(subscriber), cupti_taken.callback, None))
    train(network())


def several_gpus() -> None:
    """One process, the layers on two GPUs."""

    class Split(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(WIDTH, WIDTH).to("cuda:0")
            self.second = nn.Linear(WIDTH, WIDTH).to("cuda:1")

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x).relu().to("cuda:1"))

    train(Split())


def graphed_model() -> None:
    """Forward and backward are CUDA graphs; the update is not."""
    train(torch.cuda.make_graphed_callables(network(), (torch.randn(BATCH, WIDTH, device=GPU),)))


def graphed_step() -> None:
    """The whole step is one CUDA graph, with its update: torch sees no call but replay()."""
    model, x = network(), torch.zeros(BATCH, WIDTH, device=GPU)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    for (batch,) in batches():
        x.copy_(batch, non_blocking=True)
        graph.replay()
    print(loss.item())


def end_while_busy(how: str) -> None:
    """Ends in the middle of the timing cycle, with seconds of work in the GPU's queue."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    large = torch.randn(8192, 8192, device=GPU)
    for step, (x,) in enumerate(batches()):
        optimizer.zero_grad()
        model(x.to(GPU)).pow(2).mean().backward()
        optimizer.step()
        if step == 11:
            for _ in range(100):
                large = large @ large
            if how == "exit":
                sys.exit(5)
            if how == "os_exit":
                os._exit(5)
            raise ValueError(how)


if __name__ == "__main__":
    torch.manual_seed(0)
    kinds = (plain, cupti_taken, several_gpus, graphed_model, graphed_step)
    known = {kind.__name__: kind for kind in kinds}
    if sys.argv[1] in known:
        known[sys.argv[1]]()
    else:
        end_while_busy(sys.argv[1])
