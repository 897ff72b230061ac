"""Memory of the process and of its GPU at the end of steps, recorded or not.

Reading takes no part in the work of the GPU: the caching allocator counts on the host. A reading takes about 10 us, or
100 us with a GPU, so it is left out where the steps are too short for it.
"""

from __future__ import annotations

import os
import time
from typing import Any

MOST_READINGS = 4096  # then every second one is dropped, and the steps between two readings double
MOST_SHARE = 0.001  # of the run that readings may take
_STATM = "/proc/self/statm"


class StepMemory:
    """Bytes at the end of steps: in tensors on the current GPU, their peak, and of the process without mapped files."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.reset()

    def reset(self) -> None:
        self._rows: list[tuple[int, int | None, int | None, int | None]] = []
        self._every = 1
        self._cost_s = 0.0  # of the cheapest reading so far: the others were interrupted
        self._read_s = float("-inf")

    def step_ended(self, step: int) -> None:
        """`step`: the number of the step that ended."""
        began = time.perf_counter()
        if step % self._every or began - self._read_s < self._cost_s / MOST_SHARE:
            return
        device, device_peak = self._device_bytes()
        self._rows.append((step, _process_bytes(), device, device_peak))
        if len(self._rows) >= MOST_READINGS:
            self._every *= 2
            self._rows = [row for row in self._rows if row[0] % self._every == 0]
        self._read_s = time.perf_counter()
        took_s = self._read_s - began
        self._cost_s = min(self._cost_s, took_s) if self._cost_s else took_s

    def document(self) -> dict[str, list[int | None]] | None:
        """A column for each quantity, with null for what a reading did not find; None without a reading."""
        if not self._rows:
            return None
        names = ("steps", "process_bytes", "device_bytes", "device_peak_bytes")
        return {name: list(column) for name, column in zip(names, zip(*self._rows, strict=True), strict=True)}

    def _device_bytes(self) -> tuple[int | None, int | None]:
        """Allocated bytes now, and their highest value so far. The peak is not reset: the script may read it too."""
        try:
            cuda = self._torch.cuda
            if not cuda.is_initialized():
                return None, None
            allocated = cuda.memory_stats_as_nested_dict()["allocated_bytes"]["all"]
            return int(allocated["current"]), int(allocated["peak"])
        except Exception:  # another allocator may not count
            return None, None


def _process_bytes() -> int | None:
    """Resident memory without files and shared memory: pages of a mapped data set come and go by themselves.

    None if the system does not tell them apart.
    """
    try:
        with open(_STATM, "rb") as file:
            _, resident, shared, *_ = map(int, file.read().split())
        return (resident - shared) * os.sysconf("SC_PAGE_SIZE") if shared else None
    except (OSError, ValueError):
        return None
