"""Ends a training run in one of many ways: python endings.py HOW STEP."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time

import torch

how, last = sys.argv[1], int(sys.argv[2])
atexit.register(lambda: print("exit handler ran", flush=True))
weight = torch.zeros(4, 16, requires_grad=True)  # an optimizer would import another second's worth of torch

for step in range(1, 41):
    (torch.randn(4, 16) @ weight.T - 1).pow(2).mean().backward()
    with torch.no_grad():
        weight -= 0.1 * weight.grad
        weight.grad = None
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
