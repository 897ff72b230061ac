"""The section of the result document about the memory snapshot."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.companions.memory_snapshot.failures import Failure
from traceopt.analyzer.companions.memory_snapshot.memory_snapshot import Holder, MemorySnapshot
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.tables.schema import I8
from traceopt.result.sections.companions import (
    FailedAllocation,
    MemoryHolder,
    MemorySnapshotSection,
    SnapshotCurve,
    SnapshotGrowth,
)
from traceopt.result.words.quantities import counted, size
from traceopt.result.words.rounding import rate

MOST_HOLDERS = 50
_DRAWN = 8  # holders with an area of their own in the curve
_POINTS = 240


def section(facts: Facts) -> MemorySnapshotSection | None:
    """The section; None without a snapshot."""
    snapshot = facts.companions.memory_snapshot
    if snapshot is None:
        return None
    growth, failure = snapshot.growth, snapshot.failure
    rows = _shown_rows(snapshot)
    times = _times_us(snapshot, rows)
    return MemorySnapshotSection(
        file=snapshot.tables.label,
        device=snapshot.tables.device,
        events=len(snapshot.tables.entries),
        peak_allocated_bytes=snapshot.peak_allocated,
        peak_reserved_bytes=snapshot.peak_reserved,
        peak_us=None if times is None else _times(times)[int(np.searchsorted(rows, snapshot.peak_row))],
        holders=[_holder(snapshot, holder) for holder in snapshot.holders[:MOST_HOLDERS]],
        curve=None if times is None else _curve(snapshot, rows, times),
        growth=None
        if growth is None
        else SnapshotGrowth(
            steps=growth.steps,
            bytes_per_step=rate(growth.bytes_per_step),
            grows=growth.grows,
            kept=[
                _holder(snapshot, Holder(one.owner, round(one.bytes_per_step), 0, one.stack))
                for one in growth.kept[:10]
            ],
        ),
        fragmentation=snapshot.fragmentation,
        retries=len(snapshot.retries),
        failure=None
        if failure is None
        else FailedAllocation(
            requested_bytes=failure.requested,
            device_free_bytes=failure.device_free,
            allocated_bytes=failure.allocated,
            reserved_bytes=failure.reserved,
            largest_fit_bytes=failure.largest_fit,
            fragmented=failure.fragmented,
            caught=failure.caught,
            count=failure.count,
            location=snapshot.owner(failure.owner).site,
            stack=snapshot.stack(failure.stack),
        ),
    )


def ending(facts: Facts) -> str | None:
    """The sentence for an allocation that failed and that the program did not survive."""
    snapshot = facts.companions.memory_snapshot
    if snapshot is None or snapshot.failure is None or snapshot.failure.caught:
        return None
    return _failed(snapshot, snapshot.failure)


def headline(facts: Facts) -> str | None:
    """The verdict of a snapshot without a trace; None if there is no snapshot."""
    snapshot = facts.companions.memory_snapshot
    if snapshot is None:
        return None
    failure, growth = snapshot.failure, snapshot.growth
    if failure is not None:
        return _failed(snapshot, failure)
    if growth is not None and growth.grows and growth.kept:
        first = growth.kept[0]
        return (
            f"Memory grows by {size(growth.bytes_per_step)} in each step; "
            f"{snapshot.owner(first.owner).name} keeps {size(first.bytes_per_step)} of it."
        )
    peak = f"Memory peaks at {size(snapshot.peak_allocated)} allocated"
    if not snapshot.holders:
        return f"{peak}."
    first_holder = snapshot.holders[0]
    return (
        f"{peak}; {snapshot.owner(first_holder.owner).name} holds {size(first_holder.bytes)} of it in "
        f"{counted(first_holder.blocks, 'block')}."
    )


def _holder(snapshot: MemorySnapshot, held: Holder) -> MemoryHolder:
    owner = snapshot.owner(held.owner)
    return MemoryHolder(
        name=owner.name,
        bytes=held.bytes,
        blocks=held.blocks,
        location=owner.site,
        layer=owner.layer,
        stack=snapshot.stack(held.stack),
    )


def _shown_rows(snapshot: MemorySnapshot) -> I8:
    """The row with most memory of each of _POINTS stretches of the history, so that the peak is one of them."""
    allocated = snapshot.curve.allocated
    edges = np.unique(np.linspace(0, len(allocated), _POINTS + 1).astype(np.int64))
    stretches = zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    return np.unique([first + int(allocated[first:last].argmax()) for first, last in stretches] or [0]).astype(np.int64)


def _times_us(snapshot: MemorySnapshot, rows: I8) -> I8 | None:
    """Times since the history began; None if they were not recorded."""
    known = snapshot.tables.entries.time_us
    if not len(known) or (known < 0).any():
        return None
    return np.asarray(known[np.minimum(rows, len(known) - 1)] - known[0], np.int64)


def _times(times: I8) -> list[float]:
    return [float(time) for time in times.tolist()]


def _curve(snapshot: MemorySnapshot, rows: I8, times: I8) -> SnapshotCurve:
    drawn = [holder.owner for holder in snapshot.holders[:_DRAWN]]
    return SnapshotCurve(
        us=_times(times),
        allocated_bytes=snapshot.curve.allocated[rows].tolist(),
        reserved_bytes=snapshot.curve.reserved[rows].tolist(),
        by_holder=[held.tolist() for held in snapshot.owned_over_time(drawn, rows)],
    )


def _failed(snapshot: MemorySnapshot, failure: Failure) -> str:
    why = "Fragmentation" if failure.fragmented else "Out of memory"
    return (
        f"{why}: a request for {size(failure.requested)} at {snapshot.owner(failure.owner).name} failed while "
        f"{size(failure.allocated)} was allocated."
    )
