"""The step shown as lanes of threads and streams, with the longest spans of each."""

from __future__ import annotations

from traceopt.reports.figures.figure import FigureDict, Trace, color, figure, label, lines, nothing, scaled, time_unit
from traceopt.reports.words.part_styles import span_look
from traceopt.result.document import Result
from traceopt.result.sections.timeline_rows import Lane, Span
from traceopt.result.words import quantities

TITLE = "Timeline"


def draw(document: Result) -> FigureDict:
    """A row for each lane, a color for each category of spans."""
    timeline = document.timeline
    if timeline is None or not timeline.lanes:
        return nothing(TITLE, "The trace has no complete step.")
    unit = time_unit(timeline.duration_us)
    by_look: dict[tuple[str, str], list[tuple[Lane, Span]]] = {}
    for lane in timeline.lanes:
        for span in lane.spans:
            by_look.setdefault(span_look(span.category), []).append((lane, span))
    drawn, total = sum(map(len, by_look.values())), sum(lane.total for lane in timeline.lanes)
    cut = f" The {drawn:,} longest of {total:,} spans." if drawn < total else ""
    return figure(
        TITLE,
        [_trace(look, spans, unit) for look, spans in by_look.items()],
        subtitle=f"{timeline.step}, {quantities.ms_of_us(timeline.duration_us)}.{cut}",
        height=200 + 44 * len(timeline.lanes),
        barmode="overlay",
        xaxis={"title": f"{unit} since the step began", "range": scaled([0, timeline.duration_us], unit)},
        yaxis={
            "type": "category",
            "categoryorder": "array",
            "categoryarray": [_row(lane) for lane in timeline.lanes],
            "autorange": "reversed",
        },
    )


def _row(lane: Lane) -> str:
    return label(f"{lane.name} ({lane.detail})" if lane.detail else lane.name)


def _trace(look: tuple[str, str], spans: list[tuple[Lane, Span]], unit: str) -> Trace:
    token, name = look
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": [_row(lane) for lane, _ in spans],
        "base": scaled((span.start_us for _, span in spans), unit),
        "x": scaled((span.duration_us for _, span in spans), unit),
        "hovertext": [
            lines(span.name, f"{quantities.ms_of_us(span.duration_us)} from {quantities.ms_of_us(span.start_us)} on")
            for _, span in spans
        ],
        "hoverinfo": "text",
        "marker": {"color": color(token)},
    }
