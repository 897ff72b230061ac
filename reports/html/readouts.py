"""What the charts say under the pointer: a position and a text for each step, rank or moment."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from traceopt.reports.figures.figure import scaled, time_unit
from traceopt.reports.html.charts.rank_chart import MAX_COLUMNS, MOST_ROWS, RankDrawing
from traceopt.reports.html.charts.roofline import WIDTH, Roofline
from traceopt.reports.html.charts.step_strip import StepStrip, drawn_series
from traceopt.reports.html.charts.timeline_svg import MemoryDrawing, memory_end_us, thinned
from traceopt.reports.words.charts.step_texts import step_marks, step_text, step_totals
from traceopt.result.document import Result
from traceopt.result.sections.work_rows import StepSeries
from traceopt.result.words import quantities


class Readout(Struct, frozen=True):
    """The places of a chart from left to right: left edges in per cent of its width, the width of each, and its text.
    `chosen`: the place that is marked first, None for none. `first`: of steps, the index of the first one in the run.
    `anchors`: the rows of tables that the places lead to. `at`: moments on the axis of the figure.
    """

    left: list[float]
    width: float
    text: list[str]
    chosen: int | None = None
    first: int = 0
    anchors: list[str] = []
    at: list[float] = []


def readouts(
    rank_documents: Sequence[Result],
    strips: Sequence[StepStrip | None],
    ranks: RankDrawing | None,
    memory: MemoryDrawing | None,
    roofline: Roofline | None,
    *,
    every_step: bool,
) -> dict[str, Readout]:
    """By chart: "steps", "steps-1" of another rank, "ranks", "memory", "roofline". Charts that are not drawn miss.
    `rank_documents`: of the ranks whose steps the page has, the shown one first, with their `strips`. `every_step`: not
    only the steps that the page's own drawing has room for.
    """
    document, found = rank_documents[0], {}
    for number, of_rank in enumerate(rank_documents):
        series = of_rank.step.series if every_step else drawn_series(of_rank)
        if series is not None and strips[number] is not None:
            found[f"steps-{number}" if number else "steps"] = _steps(of_rank, series)
    if ranks is not None and len(ranks.names) > MOST_ROWS:
        found["ranks"] = _ranks(document, ranks)
    if memory is not None:
        found["memory"] = _memory(document)
    if roofline is not None:
        dots = roofline.dots
        found["roofline"] = Readout(
            [round(dot.x / WIDTH * 100, 2) for dot in dots],
            0.0,
            [f"{dot.text}." for dot in dots],
            anchors=[dot.anchor for dot in dots],
        )
    return found


def _steps(document: Result, series: StepSeries) -> Readout:
    count, totals = len(series.names), step_totals(series)
    marks = step_marks(document, series, totals)
    texts = [step_text(series, index, totals[index], marks[index]) for index in range(count)]
    left = [round(index / count * 100, 3) for index in range(count)]
    shown = min(max(0, series.shown - series.first), count - 1)
    return Readout(left, round(100 / count, 3), texts, shown, series.first)


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
    unit = time_unit(max(document.memory.curve_us or 0.0, points[-1].us))  # as the figure has it
    at = [us for us in scaled((point.us for point in points), unit) if us is not None]
    return Readout(left, 0.0, texts, at=at)
