#!/usr/bin/env python3
"""What `traceopt run` costs per step while it is not recording, measured on a tiny training loop.

python benchmarks/capture_cost.py [--pairs N]

The loop runs in its own process, alternately bare and under `traceopt run`. Each run prints the CPU time of the
main thread per step: the minimum over several epochs. The few recorded steps are in the first epoch. Needs torch.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STEPS = 2000  # per epoch
EPOCHS = 6
BATCH_SIZE = 2
PREFIX = "us per step: "


def train() -> None:
    """The measured loop. The model is so small that the overhead of the wrapped calls is visible."""
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(1)
    samples = STEPS * BATCH_SIZE
    loader = DataLoader(
        TensorDataset(torch.randn(samples, 32), torch.randint(0, 10, (samples,))), batch_size=BATCH_SIZE
    )
    model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    epochs_s = []
    for _ in range(EPOCHS):
        began = time.thread_time()
        for inputs, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
        epochs_s.append(time.thread_time() - began)
    print(f"{PREFIX}{min(epochs_s) / STEPS * 1e6:.1f}")


def step_us(launcher: list[str]) -> float:
    """CPU time in microseconds of one step of the loop, when `launcher` starts it."""
    done = subprocess.run([*launcher, __file__, "--loop"], capture_output=True, text=True, check=True)
    return next(float(line.removeprefix(PREFIX)) for line in done.stdout.splitlines() if line.startswith(PREFIX))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--loop", action="store_true", help="run the measured loop itself")
    options = parser.parse_args()
    if options.loop:
        train()
        return
    traceopt = str(Path(sys.executable).with_name("traceopt"))
    with tempfile.TemporaryDirectory() as logs:
        for pair in range(options.pairs):
            bare = step_us([sys.executable])
            run = step_us([traceopt, "run", "--no-analyze", "--logdir", f"{logs}/{pair}"])
            if not any(Path(logs, str(pair)).glob("*.pt.trace.json.gz")):
                sys.exit("nothing was recorded, so there is nothing to compare")
            print(f"bare {bare:.1f} us, under traceopt run {run:.1f} us: {run - bare:+.1f} us per step")


if __name__ == "__main__":
    main()
