"""Allocations that failed, and those that succeeded only after the allocator had given its cache back."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.columns import Columns
from traceopt.analyzer.companions.memory_snapshot.entry_columns import (
    ALLOC,
    FREE_COMPLETED,
    FREE_REQUESTED,
    OOM,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
)
from traceopt.analyzer.companions.memory_snapshot.lifetimes import Curve, Lifetimes
from traceopt.analyzer.companions.memory_snapshot.owners import Owners
from traceopt.analyzer.companions.memory_snapshot.snapshot_file import SnapshotTables
from traceopt.analyzer.tables.schema import I8


class Failure(Struct, frozen=True):
    """The last allocation that failed. Sizes in bytes; None: not known.

    `largest_fit` is the largest request that would have succeeded. `unusable` is free inside segments that are partly
    in use: nobody but small allocations can use it. `of_the_step` was allocated since the step began.
    """

    row: int
    requested: int
    device_free: int
    allocated: int
    reserved: int
    stack: int
    owner: int
    largest_fit: int | None
    unusable: int | None
    of_the_step: int | None
    count: int  # failed allocations in the history
    caught: bool  # the program went on

    @property
    def fragmented(self) -> bool:
        """The request would have fitted, had the free memory been in one piece."""
        return self.unusable is not None and self.requested <= self.unusable + self.device_free

    @property
    def capacity(self) -> int:
        """What this process can have, reserved and free."""
        return self.reserved + self.device_free


class Retries(Columns, frozen=True):
    """Allocations that first had to give cached segments back to the driver. Arrays have shape (retries,)."""

    row: I8  # of the allocation of the new segment
    freed_bytes: I8
    owner: I8

    def by_owner(self) -> list[tuple[int, int, int]]:
        """Owner, number of retries, and bytes given back; most retries first."""
        counts = np.bincount(self.owner)
        given_back = np.bincount(self.owner, weights=self.freed_bytes)
        order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        return [(owner, int(counts[owner]), int(given_back[owner])) for owner in order.tolist()]


def find_failure(
    tables: SnapshotTables, curve: Curve, lifetimes: Lifetimes, owners: Owners, step_ends: I8
) -> Failure | None:
    entries = tables.entries
    rows = np.flatnonzero(entries.action == OOM)
    if not len(rows):
        return None
    row = int(rows[-1])
    after = entries.action[row + 1 :]
    at_the_end = not np.isin(after, (ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE)).any()
    idle = ~tables.blocks.active
    free_blocks = tables.blocks.size[idle & ~tables.segments.free[tables.blocks.segment]] if at_the_end else None
    largest = None
    if free_blocks is not None:
        largest = max(int(free_blocks.max(initial=0)), max(0, int(entries.address[row])))
    begun = step_ends[step_ends <= row]
    of_the_step = None
    if len(begun):
        live = lifetimes.live(row)
        of_the_step = int(lifetimes.bytes[live[lifetimes.start[live] >= begun[-1]]].sum())
    stack = int(entries.stack[row])
    return Failure(
        row=row,
        requested=int(entries.size[row]),
        device_free=max(0, int(entries.address[row])),
        allocated=int(curve.allocated[row]),
        reserved=int(curve.reserved[row]),
        stack=stack,
        owner=int(owners.of_stack[stack]) if stack >= 0 else owners.without_stack,
        largest_fit=largest,
        unusable=int(free_blocks.sum()) if free_blocks is not None else None,
        of_the_step=of_the_step,
        count=len(rows),
        caught=bool((after == ALLOC).any()),
    )


def find_retries(tables: SnapshotTables, owners: Owners) -> Retries:
    """A run of freed segments directly before a new one. The frames of a run by empty_cache() name that function."""
    entries = tables.entries
    segments = np.flatnonzero(np.isin(entries.action, (SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP)))
    gives = np.isin(entries.action[segments], (SEGMENT_FREE, SEGMENT_UNMAP))
    # Segment entries that directly follow one another belong to one call of the allocator.
    joined = np.diff(segments, prepend=-2) == 1
    starts = gives & ~(joined & np.append(False, gives[:-1]))
    emptied = _empty_cache_stacks(tables)
    rows, freed, owner = [], [], []
    for start in np.flatnonzero(starts).tolist():
        end = start
        while end < len(segments) and gives[end] and (end == start or joined[end]):
            end += 1
        if end == len(segments) or not joined[end] or int(entries.stack[segments[start]]) in emptied:
            continue
        row, stack = int(segments[end]), int(entries.stack[segments[end]])
        rows.append(row)
        freed.append(int(entries.size[segments[start:end]].sum()))
        owner.append(int(owners.of_stack[stack]) if stack >= 0 else owners.without_stack)
    return Retries(np.array(rows, np.int64), np.array(freed, np.int64), np.array(owner, np.int64))


def _empty_cache_stacks(tables: SnapshotTables) -> set[int]:
    named = {number for number, frame in enumerate(tables.frames) if frame[2] == "empty_cache"}
    return {number for number, stack in enumerate(tables.stacks) if named.intersection(stack)}
