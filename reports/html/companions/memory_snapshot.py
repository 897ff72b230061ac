"""The section about the memory snapshot: a curve of the memory by holder, and the table of holders."""

from __future__ import annotations

from msgspec import Struct

from traceopt.reports.html.charts.timeline_svg import Tick, ticks
from traceopt.reports.html.companions.section import Section
from traceopt.reports.words.companions import memory_snapshot as words
from traceopt.reports.words.tables import Derived, ShownTable, shown_table
from traceopt.result.columns import Column, Table
from traceopt.result.companions.memory_snapshot import MemorySnapshotSection, SnapshotCurve
from traceopt.result.document import Result
from traceopt.result.quantities import size_like, size_text

WIDTH, HEIGHT = 1000, 100  # of the viewBox
COLORS = ("compute", "loader", "comm", "copy", "python", "launch", "sync", "range")
NO_COLOR = "wait"
OTHERS = "All others"


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


class Area(Struct, frozen=True):
    """The memory of one holder over time; `hover` is its stack."""

    path: str
    color: str
    hover: str


class SnapshotDrawing(Struct, frozen=True):
    """SVG paths in a viewBox of WIDTH x HEIGHT, from the bottom up."""

    areas: list[Area]
    reserved: str
    ticks: list[Tick]


class SnapshotView(Struct, frozen=True):
    """What the template prints."""

    section: MemorySnapshotSection
    drawing: SnapshotDrawing | None
    holders: ShownTable
    colors: dict[str, str]  # of the areas of holders, by name
    sentences: list[str]


def section(result: Result) -> Section | None:
    """The section; None without a snapshot."""
    snapshot = result.memory_snapshot
    if snapshot is None:
        return None
    sentences = [*words.failure(snapshot.failure), *words.growth(snapshot), words.fragmentation(snapshot)]
    if not snapshot.events:
        sentences.append(words.NO_HISTORY)
    colors = {holder.name: color_of(index) for index, holder in enumerate(snapshot.holders)}
    view = SnapshotView(snapshot, _draw(snapshot), _holders(snapshot), colors, sentences)
    return Section("memory-snapshot", "Memory snapshot", "memory_snapshot.html.j2", view)


def _holders(snapshot: MemorySnapshotSection) -> ShownTable:
    peak = snapshot.peak_allocated_bytes
    derived: Derived = {
        "size": lambda holder: size_like(holder.bytes, peak or holder.bytes),
        "share": lambda holder: holder.bytes / peak if peak else 0,
    }
    return shown_table(HOLDERS, snapshot.holders, derived=derived)


def color_of(index: int) -> str:
    """The color of a holder; those without an area have none of their own."""
    return COLORS[index] if index < len(COLORS) else NO_COLOR


def _draw(snapshot: MemorySnapshotSection) -> SnapshotDrawing | None:
    curve = snapshot.curve
    if curve is None or len(curve.us) < 2 or not any(curve.reserved_bytes):
        return None
    top = max(*curve.reserved_bytes, *curve.allocated_bytes)
    columns = _columns(curve)
    floor = [0] * len(curve.us)
    areas = []
    for index, amounts in enumerate(columns):
        ceiling = [below + amount for below, amount in zip(floor, amounts, strict=True)]
        holder = snapshot.holders[index] if index < len(curve.by_holder) else None
        areas.append(
            Area(
                _area(curve.us, floor, ceiling, top),
                color_of(index) if holder is not None else NO_COLOR,
                OTHERS if holder is None else "\n".join([f"{holder.name}: {size_text(holder.bytes)}", *holder.stack]),
            )
        )
        floor = ceiling
    return SnapshotDrawing(areas, _line(curve.us, curve.reserved_bytes, top), ticks(curve.us[-1]))


def _columns(curve: SnapshotCurve) -> list[list[int]]:
    """The bytes of each drawn holder, and of all others."""
    named = [sum(values) for values in zip(*curve.by_holder, strict=True)] if curve.by_holder else [0] * len(curve.us)
    others = [max(0, whole - part) for whole, part in zip(curve.allocated_bytes, named, strict=True)]
    return [*curve.by_holder, others]


def _area(us: list[float], floor: list[int], ceiling: list[int], top: int) -> str:
    there = _points(us, ceiling, top)
    back = _points(us, floor, top)[::-1]
    return f"M{'L'.join([*there, *back])}z"


def _line(us: list[float], amounts: list[int], top: int) -> str:
    return f"M{'L'.join(_points(us, amounts, top))}"


def _points(us: list[float], amounts: list[int], top: int) -> list[str]:
    whole = us[-1] or 1.0
    places = zip(us, amounts, strict=True)
    return [f"{time / whole * WIDTH:.1f} {HEIGHT - amount / top * HEIGHT:.2f}" for time, amount in places]
