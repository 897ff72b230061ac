"""Blocks of the caching allocator: when each was allocated and freed, paired by address."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.intervals import Intervals
from traceopt.analyzer.tables.schema import I4, I8, MemoryTable

BEFORE, AFTER = np.iinfo(np.int64).min, np.iinfo(np.int64).max


class MemoryBlocks(Struct, frozen=True):
    """Arrays have shape (len,); times in ns. `start` is BEFORE for a block allocated before the recording, `end` AFTER
    for one that outlives it. Blocks that were neither allocated nor freed during the recording are not listed.
    """

    bytes: I8
    start: I8
    end: I8
    thread: I4  # that allocated it, -1: unknown

    def __len__(self) -> int:
        return len(self.bytes)

    def outlive(self, area: Intervals) -> npt.NDArray[np.bool_]:
        """Blocks allocated inside an interval of `area` and freed after its end. Shape (len,)."""
        if not len(area):
            return np.zeros(len(self), bool)
        start = np.maximum(self.start, 0)
        inside = (self.start != BEFORE) & area.contains(start)
        index = np.searchsorted(area.start, start, side="right") - 1
        return np.asarray(inside & (self.end > area.end[np.maximum(index, 0)]))

    def live(self, time: int) -> npt.NDArray[np.bool_]:
        """Blocks that are allocated just after `time`. Shape (len,)."""
        return np.asarray((self.start <= time) & (self.end > time))


def find_blocks(table: MemoryTable, rows: I8) -> MemoryBlocks:
    """Pairs the allocations and frees of one device; `rows` are all its samples, in order of time."""
    rows = rows[table.bytes[rows] != 0]
    rows = rows[np.argsort(table.address[rows], kind="stable")]
    address, taken = table.address[rows], table.bytes[rows] > 0
    follows = np.append(address[1:] == address[:-1], False)
    paired = taken & follows & ~np.append(taken[1:], True)  # the next event of the address frees it
    given = ~taken
    given[1:] &= ~paired[:-1]  # allocated before the recording
    time = table.time[rows]
    size = np.abs(table.bytes[rows])
    end = np.where(paired, np.append(time[1:], AFTER), AFTER)
    return MemoryBlocks(
        bytes=np.concatenate((size[taken], size[given])),
        start=np.concatenate((time[taken], np.full(int(given.sum()), BEFORE))),
        end=np.concatenate((end[taken], time[given])),
        thread=np.concatenate((table.thread[rows][taken], np.full(int(given.sum()), -1, np.int32))),
    )
