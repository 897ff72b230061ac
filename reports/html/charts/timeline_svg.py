"""Geometry of the static charts: bars, ticks and curves as percentages and SVG paths."""

from __future__ import annotations

from collections import defaultdict

from msgspec import Struct

from traceopt.analyzer.vocabulary.causes.span_categories import GPU_COMPUTE
from traceopt.reports.html.charts.axes import Tick, round_values
from traceopt.reports.words.part_styles import part_style, span_color, span_words
from traceopt.result.sections.step import Memory
from traceopt.result.sections.timeline_rows import Lane, Span, Stall, Timeline
from traceopt.result.sections.work_rows import MemoryPoint
from traceopt.result.words import quantities

LEVELS = 5  # steps of opacity
NAMED_SPAN_SHARE = 0.06  # narrower bars have no name
BAND_SHARE = 0.02  # the largest stall is shaded if it takes at least this share of the step
MEMORY_POINTS = 300
TICKS = 5
LAST_TICK_SHARE = 0.82  # of the axis; on a phone a later tick would touch the label of the end


class Bar(Struct, frozen=True):
    """A span or a stall in per cent of the lane. `label` is empty if the bar is too narrow for the span's name."""

    left: float
    width: float
    color: str
    label: str


class OccupancyPath(Struct, frozen=True):
    """Parts of the step with one color and opacity, as one SVG path in a viewBox of `LaneDrawing.parts` x 1."""

    color: str
    opacity: float
    path: str


class LaneDrawing(Struct, frozen=True):
    lane: Lane
    bars: list[Bar]
    occupancy: list[OccupancyPath]
    parts: int  # of the occupancy
    stalls: list[Bar]


class TimelineDrawing(Struct, frozen=True):
    """`band` is the largest stall, shaded across all lanes; `key` explains the colors, `stall_key` the hatching."""

    lanes: list[LaneDrawing]
    band: Bar | None
    ticks: list[Tick]
    key: list[tuple[str, str]]
    stall_key: list[tuple[str, str]]


class MemoryDrawing(Struct, frozen=True):
    """SVG paths in a viewBox of 1000 x 100; heights and label positions are in per cent of the box."""

    line: str
    area: str
    reserved: str | None
    reserved_top: float | None
    peak_us: float
    ticks: list[Tick]


def ticks(duration_us: float) -> list[Tick]:
    """Round times from 0, then the end. All have the unit of the end."""
    if duration_us <= 0:
        return []
    unit_of_end = quantities.time_parts(duration_us)[1]
    end = duration_us / (1e6 if unit_of_end == "s" else 1e3)
    values, decimals = round_values(end, TICKS)
    marks = []
    for index, at in enumerate(values):
        if at < LAST_TICK_SHARE * end:
            label = f"{at:,.{decimals}f}" + (f"{quantities.NO_BREAK_SPACE}{unit_of_end}" if index == 0 else "")
            marks.append(Tick(_percent(at, end), label))
    return [*marks, Tick(100, quantities.ms_of_us(duration_us))]


def _percent(part: float, whole: float) -> float:
    return round(min(100.0, max(0.0, part / whole * 100)), 2)


def draw_timeline(timeline: Timeline, idle_word: str | None) -> TimelineDrawing:
    """`idle_word` ("GPU idle") opens the label of the shaded band; None if the GPU was not measured."""
    duration = timeline.duration_us
    if duration <= 0:
        return TimelineDrawing([], None, [], [], [])
    hatched = compute_row(timeline) if idle_word else None
    lanes = [
        _draw_lane(lane, timeline.stalls if row == hatched else [], duration) for row, lane in enumerate(timeline.lanes)
    ]
    return TimelineDrawing(
        lanes=lanes,
        band=band(timeline, idle_word),
        ticks=ticks(duration),
        key=span_words({span.category for lane in timeline.lanes for span in lane.spans}),
        stall_key=list(dict.fromkeys((stall.color, stall.label) for lane in lanes for stall in lane.stalls)),
    )


def compute_row(timeline: Timeline) -> int | None:
    """The first lane with compute spans, where the GPU's stalls are hatched."""
    rows = enumerate(timeline.lanes)
    return next((row for row, lane in rows if any(span.category == GPU_COMPUTE.key for span in lane.spans)), None)


def band(timeline: Timeline, idle_word: str | None) -> Bar | None:
    largest = max(timeline.stalls, key=lambda stall: stall.duration_us, default=None)
    if largest is None or largest.duration_us < BAND_SHARE * timeline.duration_us:
        return None
    opening = f"{idle_word} " if idle_word else ""
    label = f"{opening}{quantities.ms_of_us(largest.duration_us)}: {quantities.in_sentence(largest.label)}"
    return _stall_bar(largest, timeline.duration_us, label)


def _stall_bar(stall: Stall, duration_us: float, label: str) -> Bar:
    color = part_style(stall.cause, busy=False).color
    return Bar(_percent(stall.start_us, duration_us), _percent(stall.duration_us, duration_us), color, label)


def _draw_lane(lane: Lane, stalls: list[Stall], duration_us: float) -> LaneDrawing:
    """The bars of a lane. A dense lane has only the long ones, on top of the occupancy of all."""
    stall_bars = [_stall_bar(stall, duration_us, stall.label) for stall in stalls]
    dense = bool(lane.occupancy)
    drawn = [span for span in lane.spans if span.duration_us >= NAMED_SPAN_SHARE * duration_us] if dense else lane.spans
    bars = [
        Bar(
            _percent(start, duration_us),
            _percent(end - start, duration_us),
            span_color(span.category),
            span.name[:60] if end - start >= NAMED_SPAN_SHARE * duration_us else "",
        )
        for span, start, end in _uncovered(drawn)
    ]
    parts = len(lane.occupancy[0].shares) if dense else 0
    return LaneDrawing(lane, bars, _occupancy(lane), parts, stall_bars)


def _uncovered(spans: list[Span]) -> list[tuple[Span, float, float]]:
    """The pieces (us) of the spans that no later span hides, in order of time, so that each name is on its own bar."""
    pieces: list[tuple[Span, float, float]] = []
    for span in sorted(spans, key=lambda span: (span.start_us, -span.duration_us)):
        start, end = span.start_us, span.start_us + span.duration_us
        visible = []
        for other, left, right in pieces:
            visible += [(other, a, b) for a, b in ((left, min(right, start)), (max(left, end), right)) if a < b]
        pieces = [*visible, (span, start, end)]
    return sorted(pieces, key=lambda piece: piece[1])


def _occupancy(lane: Lane) -> list[OccupancyPath]:
    """Each part of the step in the color that fills most of it. Its opacity is the filled share, in LEVELS steps."""
    columns: dict[tuple[str, int], list[int]] = defaultdict(list)
    for column, shares in enumerate(zip(*(filled.shares for filled in lane.occupancy), strict=True)):
        fullest = max(range(len(shares)), key=lambda index: shares[index])
        level = round(min(1.0, sum(shares)) * LEVELS)
        if level:
            columns[span_color(lane.occupancy[fullest].category), level].append(column)
    return [
        OccupancyPath(color, round(0.15 + 0.85 * level / LEVELS, 2), _runs(bins))
        for (color, level), bins in columns.items()
    ]


def _runs(columns: list[int]) -> str:
    """Neighboring columns as one rectangle each."""
    path = []
    first = previous = columns[0]
    for column in [*columns[1:], -1]:
        if column == previous + 1:
            previous = column
            continue
        path.append(f"M{first} 0h{previous + 1 - first}v1H{first}z")
        first = previous = column
    return "".join(path)


def thinned(curve: list[MemoryPoint]) -> list[MemoryPoint]:
    """At most MEMORY_POINTS points: the lowest and the highest point of each bucket, in order of time."""
    if len(curve) <= MEMORY_POINTS:
        return curve
    extremes: list[MemoryPoint] = []
    buckets = MEMORY_POINTS // 2
    for index in range(buckets):
        bucket = curve[index * len(curve) // buckets : (index + 1) * len(curve) // buckets]
        both = {id(point): point for point in (min(bucket, key=_allocated), max(bucket, key=_allocated))}
        extremes.extend(sorted(both.values(), key=lambda point: point.us))
    return extremes


def _allocated(point: MemoryPoint) -> int:
    return point.allocated_bytes


def memory_end_us(memory: Memory, timeline: Timeline | None) -> float:
    """Documents of earlier versions do not say how long the curve is."""
    if memory.curve_us is not None:
        return memory.curve_us
    last = memory.curve[-1].us if memory.curve else 0.0
    return max(last, timeline.duration_us if timeline is not None else 0.0)


def draw_memory(memory: Memory, timeline: Timeline | None) -> MemoryDrawing | None:
    """None without a curve, or if nothing changes. The scale ends a little above the reserved memory."""
    end_us = memory_end_us(memory, timeline)
    if len({point.allocated_bytes for point in memory.curve}) < 2 or end_us <= 0:
        return None
    points = thinned(memory.curve)
    peak = max(points, key=_allocated)
    reserved = max([point.reserved_bytes or 0 for point in points] + [memory.peak_reserved_bytes or 0])
    top = max(peak.allocated_bytes, reserved, 1) * 1.12

    def height(value: float) -> float:
        return round(100 - value / top * 100, 1)

    # The amount is constant until the next event, so the curve is drawn in steps.
    start = points[0]
    line = f"M{round(start.us / end_us * 1000, 1):g} {height(start.allocated_bytes):g}" + "".join(
        f"H{round(point.us / end_us * 1000, 1):g}V{height(point.allocated_bytes):g}" for point in points[1:]
    )
    line += "H1000"
    return MemoryDrawing(
        line=line,
        area=f"{line}V100H{round(start.us / end_us * 1000, 1):g}z",
        reserved=f"M0 {height(reserved):g}H1000" if reserved else None,
        reserved_top=height(reserved) if reserved else None,
        peak_us=peak.us,
        ticks=ticks(end_us),
    )
