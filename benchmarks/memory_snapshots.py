"""Writes a large memory snapshot: a training with the history of every allocation and free."""

from __future__ import annotations

from pathlib import Path

from fixtures.memory_snapshots import TORCH, Allocator, Stack, training


def write(path: Path, megabytes: float, depth: int = 30) -> None:
    """Writes a snapshot of about this size, whose stacks have `depth` frames outside of the script."""
    outer: Stack = tuple((TORCH + f"utils/layer{index}.py", 10 + index, f"call_{index}") for index in range(depth))
    probe = _size(training(steps=40, outer=outer), path)
    more = _size(training(steps=80, outer=outer), path) - probe
    _size(training(steps=40 + round(40 * (megabytes * 1e6 - probe) / more), outer=outer), path)


def _size(device: Allocator, path: Path) -> int:
    return device.write(path).stat().st_size
