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
    rows = rows[np.argsort(entries.address[rows], kind="stable")].astype(np.int32)
    address, taken = entries.address[rows], entries.action[rows] == ALLOC
    same = np.append(address[1:] == address[:-1], False)
    closed = taken & same & ~np.append(taken[1:], True)
    given = ~taken
    given[1:] &= ~closed[:-1]
    never = len(entries) + 1
    end = np.where(closed, np.append(rows[1:], np.int32(never)), np.int32(never))
    # An address that is allocated again without a free in between was given up earlier: its free was not recorded.
    end = np.where(taken & same & ~closed, np.append(rows[1:], np.int32(never)), end)
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
    rows = len(tables.entries) + 1
    allocated = np.zeros(rows, np.int64)
    known, freed = lifetimes.start >= 0, lifetimes.end < lifetimes.never
    allocated[lifetimes.start[known]] += lifetimes.bytes[known]  # no row allocates or frees more than one block
    allocated[lifetimes.end[freed]] -= lifetimes.bytes[freed]
    allocated[0] += int(lifetimes.bytes[~known].sum())
    reserved = np.zeros(rows, np.int64)
    for actions, sign in (((SEGMENT_ALLOC, SEGMENT_MAP), 1), ((SEGMENT_FREE, SEGMENT_UNMAP), -1)):
        changed = np.flatnonzero(np.isin(tables.entries.action, actions))
        reserved[changed] = sign * tables.entries.size[changed]
    np.cumsum(allocated, out=allocated)
    np.cumsum(reserved, out=reserved)
    reserved += int(tables.segments.size.sum()) - reserved[-1]
    return Curve(allocated, reserved)
