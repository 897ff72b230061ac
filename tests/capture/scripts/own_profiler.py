"""Profiles itself: python own_profiler.py scheduled|inside|always|ours."""

from __future__ import annotations

import os
import sys

if "inside" in sys.argv:
    os.environ["KINETO_LOG_LEVEL"] = "0"  # print everything; read when the first profiler starts

import quick_torch  # noqa: F401
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, schedule

model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
CPU = [ProfilerActivity.CPU]
STEPS = 60
found: list[int] = []


def train() -> None:
    optimizer.zero_grad()
    model(torch.randn(4, 16)).pow(2).mean().backward()
    optimizer.step()


def count(profiler: profile) -> None:
    rows: list[Tensor] = [row for row in profiler.key_averages() if row.key == "aten::addmm"]
    found.append(sum(row.count for row in rows))


def scheduled() -> None:
    plan = schedule(wait=6, warmup=2, active=3, repeat=2)
    with profile(activities=CPU, schedule=plan, on_trace_ready=count) as profiler:
        for _ in range(STEPS):
            train()
            profiler.step()


def inside() -> None:
    """Three times for one step, the last time with autograd's old profiler."""
    for step in range(STEPS):
        if step in (4, 7, 20):
            with torch.autograd.profiler.profile() if step == 20 else profile(activities=CPU) as profiler:
                train()
            count(profiler)
        else:
            train()


def always() -> None:
    with profile(activities=CPU) as profiler:
        for _ in range(STEPS):
            train()
    count(profiler)
    profiler.export_chrome_trace("theirs.json")


def ours() -> None:
    """With traceopt's API, which does not see quite the same steps: it counts one in two."""
    import traceopt

    with traceopt.profile("logs", "quick") as profiler:
        for step in range(STEPS):
            train()
            if step % 2:
                profiler.step()
    found.append(len(profiler.traces))


{"scheduled": scheduled, "inside": inside, "always": always, "ours": ours}[sys.argv[1]]()
print("found", found)
