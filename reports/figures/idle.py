"""When the GPU was idle for long in the step shown, and why."""

from __future__ import annotations

from traceopt.reports.figures.figure import FigureDict, Trace, figure, label, lines, marker, nothing, scaled, time_unit
from traceopt.reports.words.part_styles import part_style
from traceopt.result.document import Result
from traceopt.result.sections.timeline_rows import Stall
from traceopt.result.words import quantities

TITLE = "Idle time of the GPU"


def draw(document: Result) -> FigureDict:
    """A row for each cause, the longest first."""
    timeline = document.timeline
    if timeline is None or not timeline.stalls:
        return nothing(TITLE, "The step shown has no time without GPU work, or GPU work was not recorded.")
    by_cause: dict[str, list[Stall]] = {}
    for stall in sorted(timeline.stalls, key=lambda stall: stall.start_us):
        by_cause.setdefault(stall.cause, []).append(stall)
    unit = time_unit(timeline.duration_us)
    rows = sorted(by_cause.values(), key=lambda stalls: -_total(stalls))
    idle = quantities.ms_of_us(sum(map(_total, rows)))
    duration = quantities.ms_of_us(timeline.duration_us)
    return figure(
        TITLE,
        [_trace(stalls, unit) for stalls in rows],
        subtitle=f"{timeline.step}, {duration}. Only the longest times without GPU work: {idle} together.",
        height=180 + 40 * len(rows),
        showlegend=False,
        barmode="overlay",
        xaxis={"title": f"{unit} since the step began", "range": scaled([0, timeline.duration_us], unit)},
        yaxis={"type": "category", "autorange": "reversed"},
    )


def _total(stalls: list[Stall]) -> float:
    return sum(stall.duration_us for stall in stalls)


def _trace(stalls: list[Stall], unit: str) -> Trace:
    name = f"{stalls[0].label}, {quantities.ms_of_us(_total(stalls))}"
    return {
        "type": "bar",
        "orientation": "h",
        "y": [label(name)] * len(stalls),
        "base": scaled((stall.start_us for stall in stalls), unit),
        "x": scaled((stall.duration_us for stall in stalls), unit),
        "hovertext": [
            lines(
                f"{stall.label}: {quantities.ms_of_us(stall.duration_us)}",
                f"from {quantities.ms_of_us(stall.start_us)} on",
                "" if stall.location is None else stall.location.shown,
            )
            for stall in stalls
        ],
        "hoverinfo": "text",
        "marker": marker(part_style(stalls[0].cause, busy=False)),
    }
