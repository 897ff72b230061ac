"""Ends a training run in one of many ways: python endings.py HOW STEP."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time

import quick_torch  # noqa: F401
import torch
from torch import nn

how, last = sys.argv[1], int(sys.argv[2])
atexit.register(lambda: print("exit handler ran", flush=True))
model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for step in range(1, 41):
    optimizer.zero_grad()
    model(torch.randn(4, 16)).pow(2).mean().backward()
    optimizer.step()
    if step < last:
        continue
    if how == "exit":
        sys.exit(3)
    if how == "message":
        sys.exit("a last word")
    if how == "exception":
        raise ValueError("broken")
    if how == "at-once":
        os._exit(5)
    if how in ("SIGINT", "SIGTERM", "SIGKILL", "SIGSEGV"):
        os.kill(os.getpid(), getattr(signal, how))
        time.sleep(10)
    if how == "wait":
        print("ready", flush=True)
        time.sleep(30)
print("normal end")
