"""The step of every rank: bars of its parts, or a heat map of how far each part is from the median rank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

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
    return _heat_map(f"The {noun} of each rank: difference to the median rank", names, parts, unit)


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


def _heat_map(title: str, names: Sequence[str], parts: Sequence[RankPart], unit: str) -> FigureDict:
    usual = [median(us for us in part.us if us is not None) for part in parts]
    changes = [
        scaled([None if us is None else us - middle for us in part.us], unit)
        for part, middle in zip(parts, usual, strict=True)
    ]
    texts = [
        [_hover(name, part.label, us, middle) for name, us in zip(names, part.us, strict=True)]
        for part, middle in zip(parts, usual, strict=True)
    ]
    return figure(
        title,
        [
            {
                "type": "heatmap",
                "x": [label(name) for name in names],
                "y": [label(part.label) for part in parts],
                "z": changes,
                "zmid": 0,
                "colorscale": [[0, color("compute")], [0.5, color("bg")], [1, color("loader")]],
                "colorbar": {"title": {"text": unit}},
                "hovertext": texts,
                "hoverinfo": "text",
            }
        ],
        height=180 + 60 * len(parts),
        xaxis={"title": "rank", "type": "category"},
        yaxis={"type": "category", "autorange": "reversed"},
    )


def _hover(name: str, part: str, us: float | None, usual_us: float) -> str:
    change = "" if us is None else f"difference to the median rank: {quantities.signed_time(us - usual_us)}"
    return lines(f"Rank {name}" if name.isdigit() else name, f"{part}: {quantities.ms_of_us(us)}", change)
