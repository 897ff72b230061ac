"""The ranks: the step of each in its parts, and all their steps over the whole run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median

from traceopt.reports.figures.figure import (
    FigureDict,
    Trace,
    figure,
    label,
    lines,
    marker,
    nothing,
    row_of_cells,
    rows_axis,
    scaled,
    time_unit,
    under_pointer,
    whole,
)
from traceopt.reports.words.charts.rank_parts import RankPart, rank_names, rank_parts
from traceopt.reports.words.charts.run_ranks import LONGER, SHORTER, HeatRow, run_heat_map
from traceopt.reports.words.step_words import step_noun
from traceopt.result.document import Result
from traceopt.result.sections.rank_rows import RankRow
from traceopt.result.words import quantities

TITLE = "Ranks"
RUN = "Ranks over the whole run"
ROW_PIXELS = 14
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
    """A row of cells for each part."""
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
        yaxis=rows_axis([part.label for part in upwards]),
    )


def draw_run(document: Result) -> FigureDict:
    """A row of cells for each rank: how much longer its steps take than the others', over the whole run."""
    heat_map = run_heat_map(document)
    if heat_map is None:
        return nothing(RUN, "The step times of several ranks over the whole run were not recorded.")
    edges = [*heat_map.first_steps, heat_map.steps]
    upwards = list(reversed(heat_map.rows))
    return figure(
        RUN,
        [_run_cells(row, edges) for row in upwards],
        subtitle=heat_map.caption,
        barmode="stack",
        bargap=0,
        height=180 + max(ROW_PIXELS * len(upwards), 160),
        xaxis={"title": "step", "range": [0, heat_map.steps]},
        yaxis=rows_axis([row.name for row in upwards]),
    )


def _run_cells(row: HeatRow, edges: Sequence[int]) -> Trace:
    spans = list(pairwise(edges))
    texts = (lines(row.name, f"from step {first:,}", text) for (first, _), text in zip(spans, row.texts, strict=True))
    return {
        **row_of_cells(row.name, [(first + end) / 2 for first, end in spans], row.colors, row.opacities, texts),
        "width": [end - first for first, end in spans],
    }


def _cells(part: RankPart, names: Sequence[str], usual_us: float, most_us: float) -> Trace:
    changes_us = [0.0 if us is None else us - usual_us for us in part.us]
    colors = [LONGER if change > 0 else SHORTER for change in changes_us]
    opacities = [round(abs(change) / most_us, 3) for change in changes_us]
    texts = (_hover(name, part.label, us, usual_us) for name, us in zip(names, part.us, strict=True))
    return row_of_cells(part.label, [label(name) for name in names], colors, opacities, texts)


def _hover(name: str, part: str, us: float | None, usual_us: float) -> str:
    change = "" if us is None else f"difference to the median rank: {quantities.signed_time(us - usual_us)}"
    return lines(f"Rank {name}" if name.isdigit() else name, f"{part}: {quantities.ms_of_us(us)}", change)
