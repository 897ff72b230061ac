"""The section of the reports about a memory snapshot."""

from __future__ import annotations

from traceopt.reports.words.companions.section import CompanionSection
from traceopt.reports.words.tables import Derived, shown_table
from traceopt.result.document import Result
from traceopt.result.sections.companions import FailedAllocation, MemorySnapshotSection
from traceopt.result.tables.columns import Column, Table
from traceopt.result.words.quantities import counted, size, size_like

NO_HISTORY = "The snapshot has no history, so only the memory at its end is known."
HOLDERS = Table(
    "holders",
    "Who holds the peak",
    (
        Column("name", "Line", "special"),
        Column("size", "Size", "number"),
        Column("share", "Share", "share"),
        Column("blocks", "Blocks", "count"),
        Column("layer", "Layer", "word"),
    ),
    sortable=False,
)


def section(result: Result) -> CompanionSection | None:
    """Who holds the peak, what grows and what failed; None without a snapshot."""
    known = result.memory_snapshot
    if known is None:
        return None
    failure, growth, peak = _failure(known.failure), _growth(known), known.peak_allocated_bytes
    holder: Derived = {
        "size": lambda holder: size_like(holder.bytes, peak or holder.bytes),
        "share": lambda holder: holder.bytes / peak if peak else 0,
    }
    return CompanionSection(
        anchor="memory-snapshot",
        title="Memory snapshot",
        known=known,
        lines=[_peak(known), *growth, *failure],
        sentences=[*failure, *growth, _fragmentation(known), *([] if known.events else [NO_HISTORY])],
        tables=[shown_table(HOLDERS, known.holders, derived=holder)],
    )


def _peak(snapshot: MemorySnapshotSection) -> str:
    held = ", ".join(f"{holder.name} {size(holder.bytes)}" for holder in snapshot.holders[:3])
    said = f"Memory snapshot: {size(snapshot.peak_allocated_bytes)} allocated at the peak"
    return f"{said}. Most by {held}." if held else f"{said}."


def _growth(snapshot: MemorySnapshotSection) -> list[str]:
    """Growth from step to step, if there is any."""
    found = snapshot.growth
    if found is None or not found.grows:
        return []
    kept = f"; {found.kept[0].name} keeps {size(found.kept[0].bytes)} of it" if found.kept else ""
    return [
        f"Each step leaves {size(found.bytes_per_step)} more allocated than the one before "
        f"({counted(found.steps, 'step')} compared){kept}."
    ]


def _failure(failed: FailedAllocation | None) -> list[str]:
    """The allocation that failed, and what would have fitted."""
    if failed is None:
        return []
    fits = f" The largest request that would have fitted: {size(failed.largest_fit_bytes)}."
    return [
        f"A request for {size(failed.requested_bytes)} failed with {size(failed.allocated_bytes)} allocated, "
        f"{size(failed.reserved_bytes)} reserved and {size(failed.device_free_bytes)} free on the device."
        f"{fits if failed.largest_fit_bytes is not None else ''}"
    ]


def _fragmentation(snapshot: MemorySnapshotSection) -> str:
    """The allocator's memory at the end."""
    lost = snapshot.fragmentation
    return (
        f"When the snapshot was taken: {size(lost.reserved_bytes)} reserved, {size(lost.active_bytes)} of it in use, "
        f"{size(lost.cached_bytes)} cached in free segments, {size(lost.unusable_bytes)} free between blocks in use "
        f"(largest piece {size(lost.largest_free_bytes)}). Allocations that first had to empty the cache: "
        f"{snapshot.retries:,}."
    )
