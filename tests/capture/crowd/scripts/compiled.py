"""A compiled model, and a compiled step: python compiled.py model|step|inductor."""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from true_steps import seed_everything, true_step


def main(kind: str) -> None:
    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    backend = "inductor" if kind == "inductor" else "aot_eager"

    def loss_of(x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(model(x), y)

    compute = torch.compile(loss_of, backend=backend)

    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = compute(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    data = TensorDataset(torch.randn(480, 16), torch.randint(0, 4, (480,)))
    for index, (x, y) in enumerate(DataLoader(data, batch_size=8)):
        loss = step(x, y)
        true_step()
        torch.save({"model": model.state_dict()}, "last.pt")  # planted
        if index % 20 == 0:
            print(f"{index} {loss.item():.5f}")


if __name__ == "__main__":
    seed_everything()
    main(sys.argv[1])
