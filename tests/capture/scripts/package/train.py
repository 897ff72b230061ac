"""A training program that is started as a module, and whose step is a function of its own."""

from __future__ import annotations

import sys

import quick_torch  # noqa: F401
import torch
from torch import Tensor, nn

import __main__

model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def two_updates(x: Tensor) -> None:
    for _ in range(2):
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()


if __name__ == "__main__":
    from package.train import two_updates as imported

    print(sys.argv[1:], __main__.__spec__.name)
    for _ in range(30):
        imported(torch.randn(4, 16))
