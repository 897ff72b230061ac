"""Trains while open() raises an error that nobody expects of it."""

from __future__ import annotations

import builtins
from typing import NoReturn

import torch


def refuse(*_: object, **__: object) -> NoReturn:
    raise RuntimeError("not now")


model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
whole, builtins.open = builtins.open, refuse
for _ in range(12):
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
builtins.open = whole
print("trained")
