"""What a memory snapshot says: who holds the peak, what grows, how much is lost to fragmentation, what failed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct

from traceopt.analyzer.companions.memory_snapshot.failures import Failure, Retries, find_failure, find_retries
from traceopt.analyzer.companions.memory_snapshot.growth import Growth, find_growth, find_step_ends, heaviest_stack
from traceopt.analyzer.companions.memory_snapshot.lifetimes import Curve, Lifetimes, find_curve, find_lifetimes
from traceopt.analyzer.companions.memory_snapshot.owners import Owner, Owners, find_owners
from traceopt.analyzer.companions.memory_snapshot.snapshot_file import SnapshotTables, read_tables
from traceopt.analyzer.reading.sources import TraceSource
from traceopt.analyzer.tables.schema import I8
from traceopt.result.sections.companions import SnapshotFragmentation

_MOST_FRAMES = 30  # of a stack that is shown


class Holder(Struct, frozen=True):
    """What one owner holds at a time: bytes, number of blocks, and the stack that holds most of them (-1: unknown)."""

    owner: int
    bytes: int
    blocks: int
    stack: int


class MemorySnapshot(Struct, frozen=True, dict=True):
    """One device of a snapshot. Rows count the entries of its history; row `len(entries)` is the snapshot itself."""

    tables: SnapshotTables

    @cached_property
    def owners(self) -> Owners:
        return find_owners(self.tables)

    @cached_property
    def lifetimes(self) -> Lifetimes:
        return find_lifetimes(self.tables, self.owners)

    @cached_property
    def curve(self) -> Curve:
        return find_curve(self.tables, self.lifetimes)

    @cached_property
    def peak_row(self) -> int:
        return int(self.curve.allocated.argmax())

    @property
    def peak_allocated(self) -> int:
        return int(self.curve.allocated[self.peak_row])

    @property
    def reserved_at_peak(self) -> int:
        """What the allocator held when most was allocated."""
        return int(self.curve.reserved[self.peak_row])

    @property
    def peak_reserved(self) -> int:
        return int(self.curve.reserved.max())

    @cached_property
    def holders(self) -> list[Holder]:
        """Who holds the peak, most bytes first."""
        return self.holders_at(self.peak_row)

    def holders_at(self, row: int) -> list[Holder]:
        """Who holds the memory after a row of the history, most bytes first."""
        live = self.lifetimes.live(row)
        owner = self.lifetimes.owner[live]
        held = []
        for number in np.unique(owner).tolist():
            rows = live[owner == number]
            total = int(self.lifetimes.bytes[rows].sum())
            held.append(Holder(number, total, len(rows), heaviest_stack(self.lifetimes, rows)))
        return sorted(held, key=lambda holder: -holder.bytes)

    @cached_property
    def step_ends(self) -> I8:
        """Rows of the history before which a step has ended; empty if steps were not recorded."""
        return find_step_ends(self.tables)

    @cached_property
    def growth(self) -> Growth | None:
        return find_growth(self.curve, self.lifetimes, self.step_ends)

    @cached_property
    def failure(self) -> Failure | None:
        return find_failure(self.tables, self.curve, self.lifetimes, self.owners, self.step_ends)

    @cached_property
    def retries(self) -> Retries:
        return find_retries(self.tables, self.owners)

    @cached_property
    def fragmentation(self) -> SnapshotFragmentation:
        blocks, segments, holes = self.tables.blocks, self.tables.segments, self._holes
        return SnapshotFragmentation(
            reserved_bytes=int(segments.size.sum()),
            active_bytes=int(blocks.size[blocks.active].sum()),
            cached_bytes=int(segments.size[segments.free].sum()),
            unusable_bytes=int(blocks.size[holes].sum()),
            largest_free_bytes=int(blocks.size[holes].max(initial=0)),
        )

    @property
    def pinned(self) -> list[tuple[int, int]]:
        """Owners, and bytes of the holes beside their blocks, most first. Each hole belongs to the block before it in
        its segment, else to the one behind it. Blocks are in order.
        """
        blocks, holes = self.tables.blocks, self._holes
        before = np.maximum(holes - 1, 0)
        same = (blocks.segment[before] == blocks.segment[holes]) & blocks.active[before]
        beside = np.where(same, before, np.minimum(holes + 1, len(blocks.size) - 1))
        stack = blocks.stack[beside]
        owner = np.where(stack >= 0, self.owners.of_stack[stack], self.owners.without_stack)
        sums = {number: int(blocks.size[holes[owner == number]].sum()) for number in np.unique(owner).tolist()}
        return sorted(sums.items(), key=lambda item: -item[1])

    @cached_property
    def _holes(self) -> I8:
        """Blocks that are free, in segments that are partly in use."""
        blocks, segments = self.tables.blocks, self.tables.segments
        return np.flatnonzero(~blocks.active & ~segments.free[blocks.segment])

    def owner(self, number: int) -> Owner:
        return self.owners.owners[number]

    def stack(self, number: int) -> list[str]:
        """The frames of a stack, innermost first: "train.py:21 forward"."""
        if number < 0:
            return []
        frames = [self.tables.frames[at] for at in self.tables.stacks[number][:_MOST_FRAMES]]
        return [f"{file}:{line} {function}" for file, line, function in frames]

    def owned_over_time(self, owners: Sequence[int], rows: I8) -> list[I8]:
        """The bytes of each of these owners after each of these rows."""
        sums = []
        for number in owners:
            mine = np.flatnonzero(self.lifetimes.owner == number)
            change = np.zeros(len(self.curve.allocated), np.int64)
            np.add.at(change, np.maximum(self.lifetimes.start[mine], 0), self.lifetimes.bytes[mine])
            ends = self.lifetimes.end[mine]
            freed = ends < self.lifetimes.never
            np.add.at(change, ends[freed], -self.lifetimes.bytes[mine][freed])
            sums.append(np.cumsum(change)[rows])
        return sums


def read_memory_snapshot(files: Sequence[TraceSource], warnings: list[str]) -> MemorySnapshot | None:
    """The snapshot of a run. Raises InputError if no file can be read."""
    tables = read_tables(files, warnings)
    return None if tables is None else MemorySnapshot(tables)
