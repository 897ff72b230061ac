#!/usr/bin/env python3
"""Whether a long training grows under `traceopt run`: memory and time per step of 100,000 tiny steps.

python benchmarks/soak.py [--steps N]

Prints a row for each tenth of the run: the median time of a step, and the memory of the process after it. The steps are
recorded in the first tenth, so growth is measured from the second one on. Needs Linux and torch.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

PARTS = 10
PREFIX = "part "


def train(steps: int) -> None:
    """The measured loop; it prints what each part of it took."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs, wanted = torch.randn(4, 8), torch.randn(4, 4)
    for part in range(PARTS):
        times_us = []
        for _ in range(steps // PARTS):
            began = time.perf_counter()
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), wanted).backward()
            optimizer.step()
            times_us.append((time.perf_counter() - began) * 1e6)
        print(f"{PREFIX}{part} {median(times_us):.1f} {_memory_kib()}", flush=True)


def _memory_kib() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))


def parts_of(launcher: list[str], steps: int) -> list[tuple[float, int]]:
    """For each part of the loop that `launcher` starts: microseconds per step, and KiB."""
    command = [*launcher, __file__, "--loop", "--steps", str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(PREFIX)]
    return [(float(row[2]), int(row[3])) for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--loop", action="store_true", help="run the measured loop itself")
    options = parser.parse_args()
    if options.loop:
        train(options.steps)
        return
    bare = parts_of([sys.executable], options.steps)
    with tempfile.TemporaryDirectory() as folder:
        run = [sys.executable, "-m", "traceopt", "run", "--no-analyze", "--logdir", folder]
        under = parts_of(run, options.steps)
    print(f"{'steps':>9}  {'bare':>20}  {'under traceopt run':>20}")
    for part, sides in enumerate(zip(bare, under, strict=True), 1):
        columns = "  ".join(f"{us:7.1f} us {kib / 1024:6.1f} MiB" for us, kib in sides)
        print(f"{part * options.steps // PARTS:>9,}  {columns}")
    for name, rows in (("bare", bare), ("under traceopt run", under)):
        (first_us, first_kib), (last_us, last_kib) = rows[1], rows[-1]
        print(f"{name}: {last_us / first_us - 1:+.1%} time, {(last_kib - first_kib) / 1024:+.1f} MiB")


if __name__ == "__main__":
    main()
