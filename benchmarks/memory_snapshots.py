"""Measures how long reading a large memory snapshot takes, and how much memory.

    .venv/bin/python -m benchmarks.memory_snapshots --megabytes 200

The file is generated: a training whose stacks have `--depth` frames each, with the history of every allocation and
free. Each command runs as a process of its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from pathlib import Path

from benchmarks.processes import measure
from fixtures.memory_snapshots import SCRIPT, TORCH, Allocator, Stack, training

READ = (
    "import sys; from traceopt.analyzer.companions.memory_snapshot.memory_snapshot import read; "
    "from traceopt.analyzer.reading.sources import find_sources; "
    "print(len(read([one.source for one in find_sources(sys.argv[1:]).companions], []).tables.entries))"
)
PLAIN = "import pickle, sys; print(len(pickle.load(open(sys.argv[1], 'rb'))['device_traces'][0]))"


def write(path: Path, megabytes: float, depth: int) -> None:
    """Writes a snapshot of about this size."""
    outer: Stack = tuple((TORCH + f"utils/layer{index}.py", 10 + index, f"call_{index}") for index in range(depth))
    probe = _size(training(steps=40, outer=outer), path)
    more = _size(training(steps=80, outer=outer), path) - probe
    _size(training(steps=40 + round(40 * (megabytes * 1e6 - probe) / more), outer=outer), path)


def _size(device: Allocator, path: Path) -> int:
    return device.write(path).stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=200.0)
    parser.add_argument("--depth", type=int, default=30, help=f"frames outside of {Path(SCRIPT).name}")
    parser.add_argument("--file", type=Path, default=Path("build/bench/snapshot.pickle"))
    options = parser.parse_args()
    # In a process of its own, because its memory would count for the commands below.
    writer = multiprocessing.get_context("spawn").Process(
        target=write, args=(options.file, options.megabytes, options.depth)
    )
    writer.start()
    writer.join()
    file = str(options.file)
    print(f"{options.file.stat().st_size / 1e6:.0f} MB, {options.depth} frames outside of the script")
    commands = {
        "read": [sys.executable, "-c", READ, file],
        "traceopt analyze": [sys.executable, "-m", "traceopt", "analyze", file, "--html", file + ".html"],
        "pickle.load": [sys.executable, "-c", PLAIN, file],
    }
    for name, command in commands.items():
        sample = measure(command)
        peak_mb = sample.peak_bytes / 1e6
        print(f"{name:20s} {sample.wall_s:6.2f} s, {sample.cpu_s:6.2f} s of CPU time, {peak_mb:6.0f} MB")


if __name__ == "__main__":
    main()
