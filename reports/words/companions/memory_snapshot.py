"""The words for a memory snapshot."""

from __future__ import annotations

from traceopt.result.companions.memory_snapshot import FailedAllocation, MemorySnapshotSection
from traceopt.result.document import Result
from traceopt.result.quantities import counted, size

NO_HISTORY = "The snapshot has no history, so only the memory at its end is known."


def lines(result: Result) -> list[str]:
    """The snapshot in a few sentences."""
    snapshot = result.memory_snapshot
    return [] if snapshot is None else [*_peak(snapshot), *growth(snapshot), *failure(snapshot.failure)]


def _peak(snapshot: MemorySnapshotSection) -> list[str]:
    held = ", ".join(f"{one.name} {size(one.bytes)}" for one in snapshot.holders[:3])
    said = f"Memory snapshot: {size(snapshot.peak_allocated_bytes)} allocated at the peak"
    return [f"{said}. Most by {held}." if held else f"{said}."]


def growth(snapshot: MemorySnapshotSection) -> list[str]:
    """Growth from step to step, if there is any."""
    found = snapshot.growth
    if found is None or not found.grows:
        return []
    kept = f"; {found.kept[0].name} keeps {size(found.kept[0].bytes)} of it" if found.kept else ""
    return [
        f"Each step leaves {size(found.bytes_per_step)} more allocated than the one before "
        f"({counted(found.steps, 'step')} compared){kept}."
    ]


def failure(failed: FailedAllocation | None) -> list[str]:
    """The allocation that failed, and what would have fitted."""
    if failed is None:
        return []
    fits = f" The largest request that would have fitted: {size(failed.largest_fit_bytes)}."
    return [
        f"A request for {size(failed.requested_bytes)} failed with {size(failed.allocated_bytes)} allocated, "
        f"{size(failed.reserved_bytes)} reserved and {size(failed.device_free_bytes)} free on the device."
        f"{fits if failed.largest_fit_bytes is not None else ''}"
    ]


def fragmentation(snapshot: MemorySnapshotSection) -> str:
    """The allocator's memory at the end."""
    lost = snapshot.fragmentation
    return (
        f"When the snapshot was taken: {size(lost.reserved_bytes)} reserved, {size(lost.active_bytes)} of it in use, "
        f"{size(lost.cached_bytes)} cached in free segments, {size(lost.unusable_bytes)} free between blocks in use "
        f"(largest piece {size(lost.largest_free_bytes)}). Allocations that first had to empty the cache: "
        f"{snapshot.retries:,}."
    )
