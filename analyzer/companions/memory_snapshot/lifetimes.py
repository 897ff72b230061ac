"""How long each block lived, and what was allocated and reserved after each entry of the history."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceopt.analyzer.companions.memory_snapshot.entry_columns import (
    ALLOC,
    FREE_COMPLETED,
    FREE_REQUESTED,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
)
from traceopt.analyzer.companions.memory_snapshot.owners import Owners
from traceopt.analyzer.companions.memory_snapshot.snapshot_file import SnapshotTables
from traceopt.analyzer.tables.schema import I8


class Lifetimes(Struct, frozen=True):
    """Blocks from the row of the history that allocates them (-1: before the recording) to the row that frees them
    (`never`: none does). Arrays have shape (blocks,); `bytes` is what was asked for, `stack` -1 if unknown.
    """

    start: I8
    end: I8
    bytes: I8
    stack: I8
    owner: I8
    never: int

    def live(self, row: int) -> I8:
        """Numbers of the blocks that are allocated after this row of the history."""
        return np.flatnonzero((self.start <= row) & (self.end > row))


class Curve(Struct, frozen=True):
    """Bytes after each row of the history; the last value, of row `len(entries)`, is the snapshot itself."""

    allocated: I8
    reserved: I8


def find_lifetimes(tables: SnapshotTables, owners: Owners) -> Lifetimes:
    """Pairs each allocation with the free that follows it at the same address. Blocks of the snapshot that the history
    does not allocate were there before it.
    """
    entries = tables.entries
    freed = FREE_COMPLETED if (entries.action == FREE_COMPLETED).any() else FREE_REQUESTED
    rows = np.flatnonzero((entries.action == ALLOC) | (entries.action == freed))
    rows = rows[np.argsort(entries.address[rows], kind="stable")]
    address, taken = entries.address[rows], entries.action[rows] == ALLOC
    same = np.append(address[1:] == address[:-1], False)
    closed = taken & same & ~np.append(taken[1:], True)
    given = ~taken
    given[1:] &= ~closed[:-1]
    never = len(entries) + 1
    end = np.where(closed, np.append(rows[1:], never), never)
    # An address that is allocated again without a free in between was given up earlier: its free was not recorded.
    end = np.where(taken & same & ~closed, np.append(rows[1:], never), end)
    held = np.isin(tables.blocks.address, address[taken & (end == never)])
    old = np.flatnonzero(tables.blocks.active & ~held)
    stack = np.concatenate((entries.stack[rows][taken], np.full(int(given.sum()), -1), tables.blocks.stack[old]))
    start = np.concatenate((rows[taken], np.full(int(given.sum()) + len(old), -1)))
    owner = np.full(len(stack), owners.without_stack)
    owner[stack >= 0] = owners.of_stack[stack[stack >= 0]]
    owner[(stack < 0) & (start < 0)] = owners.before_recording
    return Lifetimes(
        start=start,
        end=np.concatenate((end[taken], rows[given], np.full(len(old), never))),
        bytes=np.concatenate((entries.size[rows][taken], entries.size[rows][given], tables.blocks.requested[old])),
        stack=stack,
        owner=owner,
        never=never,
    )


def find_curve(tables: SnapshotTables, lifetimes: Lifetimes) -> Curve:
    entries = tables.entries
    last = len(entries)
    change = np.zeros(last + 1, np.int64)
    known, freed = lifetimes.start >= 0, lifetimes.end < lifetimes.never
    np.add.at(change, lifetimes.start[known], lifetimes.bytes[known])
    np.add.at(change, lifetimes.end[freed], -lifetimes.bytes[freed])
    before = int(lifetimes.bytes[lifetimes.start < 0].sum())
    grown = np.isin(entries.action, (SEGMENT_ALLOC, SEGMENT_MAP)) * entries.size
    shrunk = np.isin(entries.action, (SEGMENT_FREE, SEGMENT_UNMAP)) * entries.size
    reserved = np.append(np.cumsum(grown - shrunk), 0)
    reserved[-1] = reserved[-2] if last else 0
    reserved += int(tables.segments.size.sum()) - reserved[-1]
    return Curve(before + np.cumsum(change), reserved)
