"""The memory that recorded events take, which bounds a recording before it is exported.

Torch does not say how many events it has recorded. It keeps each in about 230 bytes until the profiler stops, which
then needs about twelve times as much, and 5 to 20 us per event. The only way to measure this without stopping is how
much more memory is in use at the same point of a later step, according to glibc.
"""

from __future__ import annotations

import ctypes
import time

from ..machine import available_memory_bytes

EVENT_BYTES = 230
MOST_EVENTS = 500_000
LIMIT_BYTES = MOST_EVENTS * EVENT_BYTES
STOP_FACTOR = 16  # what must be free to stop and save, as a multiple of the memory of the events
# Reading takes longer the more blocks are free: 3 ms of each step where a script keeps 12,000 small arrays. In this
# time a thread records less than a fifth of the most events.
READ_EVERY_S = 0.1
_FIELDS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class EventMemory:
    """Measures one recording. `limit_bytes` holds half a million events, or less if little memory is free."""

    def __init__(self) -> None:
        free = available_memory_bytes()
        self.limit_bytes = LIMIT_BYTES if free is None else min(LIMIT_BYTES, free // STOP_FACTOR)
        self._first: dict[str, int] = {}
        self._read_s = float("-inf")

    def grown_bytes(self, point: str) -> int:
        """Growth since the first reading at this point of a step. 0 if the system cannot tell, or if the last reading
        at any point is recent.
        """
        if time.perf_counter() - self._read_s < READ_EVERY_S:
            return 0
        now = _in_use_bytes()
        self._read_s = time.perf_counter()
        return now - self._first.setdefault(point, now)

    def excess(self, point: str, times: float = 1) -> str | None:
        """About how many events there are at this point, if their memory has grown beyond so many times the limit."""
        grown_bytes = self.grown_bytes(point)
        return (
            f"{grown_bytes / EVENT_BYTES / 1e6:.1f} million events" if grown_bytes > times * self.limit_bytes else None
        )


class _Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS.split()]


def _in_use_bytes() -> int:
    """Memory that C code has allocated and not freed. Reading it takes 0.05 to 2 ms."""
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2  # glibc since 2.33
    except (AttributeError, OSError, TypeError):
        return 0
    mallinfo.restype = _Mallinfo
    info = mallinfo()
    return int(info.uordblks + info.hblkhd)
