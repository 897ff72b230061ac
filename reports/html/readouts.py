"""What the charts say under the pointer: a position and a text for each step, rank or moment, read by main.js."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from traceopt.reports.html.charts.rank_chart import MAX_COLUMNS, MOST_ROWS, RankDrawing
from traceopt.reports.html.charts.step_strip import StepStrip
from traceopt.reports.html.charts.timeline_svg import MemoryDrawing, memory_end_us, thinned
from traceopt.result.document import Result
from traceopt.result.words import quantities


class Readout(Struct, frozen=True):
    """The places of a chart from left to right: left edges in per cent of its width, the width of each, and its text.
    `chosen`: the place that is marked first, None for none.
    """

    left: list[float]
    width: float
    text: list[str]
    chosen: int | None = None


def readouts(
    document: Result, strips: Sequence[StepStrip | None], ranks: RankDrawing | None, memory: MemoryDrawing | None
) -> dict[str, Readout]:
    """By chart: "steps", "steps-1" of another rank, "ranks", "memory". Charts that are not drawn are left out."""
    found = {}
    for number, steps in enumerate(strips):
        if steps is not None:
            columns = steps.columns
            found[f"steps-{number}" if number else "steps"] = Readout(
                [column.left for column in columns], columns[0].width, [column.text for column in columns], steps.shown
            )
    if ranks is not None and len(ranks.names) > MOST_ROWS:
        found["ranks"] = _ranks(document, ranks)
    if memory is not None:
        found["memory"] = _memory(document)
    return found


def _ranks(document: Result, drawing: RankDrawing) -> Readout:
    texts = []
    for index, (name, row) in enumerate(zip(drawing.names, document.ranks[:MAX_COLUMNS], strict=True)):
        parts = [f"{part.label} {quantities.ms_of_us(part.us[index])}" for part in drawing.parts if part.us[index]]
        named = name if row.rank is None else f"Rank {name}"
        texts.append(f"{named}, {quantities.ms_of_us(row.step_us)}{': ' if parts else ''}{'; '.join(parts)}.")
    width = 100 / len(texts)
    return Readout([round(index * width, 3) for index in range(len(texts))], round(width, 3), texts)


def _memory(document: Result) -> Readout:
    points, end_us = thinned(document.memory.curve), memory_end_us(document.memory, document.timeline)
    left = [round(point.us / end_us * 100, 3) for point in points]
    texts = [
        f"{quantities.size_text(point.allocated_bytes)} allocated at {quantities.ms_of_us(point.us)}."
        for point in points
    ]
    return Readout(left, 0.0, texts)
