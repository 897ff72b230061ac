"""The chart of a memory snapshot: the memory of each holder over the recorded history."""

from __future__ import annotations

from msgspec import Struct

from traceopt.reports.html.charts.axes import Tick
from traceopt.reports.html.charts.timeline_svg import ticks
from traceopt.result.sections.companions import MemorySnapshotSection, SnapshotCurve
from traceopt.result.words.quantities import size_text

WIDTH, HEIGHT = 1000, 100  # of the viewBox
COLORS = ("compute", "loader", "comm", "copy", "python", "launch", "sync", "range")
NO_COLOR = "wait"
OTHERS = "All others"


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


def holder_colors(snapshot: MemorySnapshotSection) -> dict[str, str]:
    """The colors of the holders by name."""
    return {holder.name: _color(index) for index, holder in enumerate(snapshot.holders)}


def draw_snapshot(snapshot: MemorySnapshotSection) -> SnapshotDrawing | None:
    """None without a history."""
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
                _color(index) if holder is not None else NO_COLOR,
                OTHERS if holder is None else "\n".join([f"{holder.name}: {size_text(holder.bytes)}", *holder.stack]),
            )
        )
        floor = ceiling
    return SnapshotDrawing(areas, _line(curve.us, curve.reserved_bytes, top), ticks(curve.us[-1]))


def _color(index: int) -> str:
    """The color of a holder; those without an area have none of their own."""
    return COLORS[index] if index < len(COLORS) else NO_COLOR


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
