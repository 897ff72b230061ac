"""The step of every rank: bars of its parts, or a heat map of how far each part is from the median rank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from traceopt.analyzer.vocabulary.causes.table import COMPUTE, DATA_LOADING
from traceopt.reports.figures.figure import (
    FigureDict,
    Trace,
    color,
    figure,
    label,
    lines,
    marker,
    nothing,
    scaled,
    time_unit,
    under_pointer,
    whole,
)
from traceopt.reports.words.charts.rank_parts import RankPart, rank_names, rank_parts
from traceopt.reports.words.step_words import step_noun
from traceopt.result.document import Result
from traceopt.result.rows import RankRow
from traceopt.result.words import quantities

TITLE = "Ranks"
MOST_BARS = 32  # ranks drawn as bars; more ranks are a heat map


def draw(document: Result) -> FigureDict:
    rows = document.ranks
    steps = [row.step_us for row in rows if row.step_us]
    if len(steps) < 2:
        return nothing(TITLE, "Only one rank has a step.")
    names, parts, unit = rank_names(rows), rank_parts(rows), time_unit(max(steps))
    noun = "recording" if step_noun(document) == "recording" else "typical step"
    if len(rows) <= MOST_BARS:
        return _bars(f"The {noun} of each rank", rows, parts, unit)
    return _heat_map(f"The {noun} of each rank: difference to the median rank", names, parts)


def _bars(title: str, rows: Sequence[RankRow], parts: Sequence[RankPart], unit: str) -> FigureDict:
    names = [label(name) for name in rank_names(rows)]
    hovered = "Rank %{x}" if all(name.isdigit() for name in names) else "%{x}"
    bars: Iterable[Trace] = (
        {
            "type": "bar",
            "name": label(part.label),
            "x": names,
            "y": scaled(part.us, unit),
            "hovertemplate": under_pointer(unit),
            "marker": marker(part.look),
        }
        for part in parts
    )
    return figure(
        title,
        [whole("Step", names, (row.step_us for row in rows), unit), *bars],
        barmode="stack",
        height=460,
        hovermode="x unified",
        xaxis={"title": "rank", "type": "category", "unifiedhovertitle": {"text": hovered}},
        yaxis={"title": unit},
    )


def _heat_map(title: str, names: Sequence[str], parts: Sequence[RankPart]) -> FigureDict:
    """A row of cells for each part: stacked bars, because a bundle with true heat maps is a quarter larger."""
    upwards = list(reversed(parts))
    usual_us = [median(us for us in part.us if us is not None) for part in upwards]
    most_us = max(
        abs(us - usual) for part, usual in zip(upwards, usual_us, strict=True) for us in part.us if us is not None
    )
    return figure(
        f"{title} (orange: longer, blue: shorter; full color: {quantities.ms_of_us(most_us)})",
        [_cells(part, names, usual, most_us or 1.0) for part, usual in zip(upwards, usual_us, strict=True)],
        barmode="stack",
        bargap=0,
        height=180 + 60 * len(parts),
        xaxis={"title": "rank", "type": "category", "nticks": 20},
        yaxis={
            "range": [0, len(parts)],
            "tickvals": [row + 0.5 for row in range(len(parts))],
            "ticktext": [label(part.label) for part in upwards],
            "showgrid": False,
        },
    )


def _cells(part: RankPart, names: Sequence[str], usual_us: float, most_us: float) -> Trace:
    changes_us = [0.0 if us is None else us - usual_us for us in part.us]
    return {
        "type": "bar",
        "name": label(part.label),
        "showlegend": False,
        "x": [label(name) for name in names],
        "y": [1] * len(names),
        "hovertext": [_hover(name, part.label, us, usual_us) for name, us in zip(names, part.us, strict=True)],
        "hoverinfo": "text",
        "marker": {
            "color": [color(DATA_LOADING.look.color if change > 0 else COMPUTE.look.color) for change in changes_us],
            "opacity": [round(abs(change) / most_us, 3) for change in changes_us],
        },
    }


def _hover(name: str, part: str, us: float | None, usual_us: float) -> str:
    change = "" if us is None else f"difference to the median rank: {quantities.signed_time(us - usual_us)}"
    return lines(f"Rank {name}" if name.isdigit() else name, f"{part}: {quantities.ms_of_us(us)}", change)
