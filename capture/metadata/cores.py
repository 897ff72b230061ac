"""How long a thread ran, and how long it was ready but had no free core, according to Linux."""

from __future__ import annotations

import threading
import time


class CoreWait:
    """Measures the thread that creates it, from then on.

    The clock is read before the first reading of the counters and after the last one, so that the wall time also
    covers a wait between the two.
    """

    def __init__(self) -> None:
        self._path = f"/proc/self/task/{threading.get_native_id()}/schedstat"
        self._since = time.perf_counter()
        self._from = self._last = self._read_us()

    def since_last_us(self) -> float | None:
        """How long the thread waited since the last call; None if that is not known."""
        last, now = self._last, self._read_us()
        self._last = now
        return None if now is None or last is None else now[1] - last[1]

    def document(self) -> dict[str, float] | None:
        """The times in microseconds; None if the system does not count them or the thread has ended."""
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
        return (ran_ns / 1000, waited_ns / 1000) if ran_ns else None  # kernels that do not count write zeros
