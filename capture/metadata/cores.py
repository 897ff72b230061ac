"""How long a thread ran, and how long it was ready to run while no core was free for it, as Linux counts it."""

from __future__ import annotations

import threading
import time


class CoreWait:
    """Of the thread that makes it, from then on."""

    def __init__(self) -> None:
        self._path = f"/proc/self/task/{threading.get_native_id()}/schedstat"
        self._from = self._read_us()
        self._since = time.perf_counter()

    def document(self) -> dict[str, float] | None:
        """None where the system does not count, or the thread has ended."""
        now = self._read_us()
        if now is None or self._from is None:
            return None
        (ran_us, waited_us), wall_us = now, (time.perf_counter() - self._since) * 1e6
        return {
            "us": round(waited_us - self._from[1], 1),
            "cpu_us": round(ran_us - self._from[0], 1),
            "wall_us": round(wall_us, 1),
        }

    def _read_us(self) -> tuple[float, float] | None:
        try:
            with open(self._path, "rb") as file:
                ran_ns, waited_ns, _ = map(int, file.read().split())
        except (OSError, ValueError):
            return None
        return (ran_ns / 1000, waited_ns / 1000) if ran_ns else None  # a kernel that does not count writes zeros
