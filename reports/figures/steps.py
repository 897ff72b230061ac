"""Every recorded step in its parts, with unusual steps, evaluations and checkpoints marked, and all steps as a line."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from traceopt.reports.figures.figure import (
    LEGEND_SHARE,
    FigureDict,
    Trace,
    along_run,
    color,
    figure,
    label,
    marker,
    nothing,
    plain,
    scaled,
    time_unit,
    under_pointer,
    whole,
    whole_ticks,
)
from traceopt.reports.words.charts.step_texts import HIGHEST, step_label, step_marks, step_totals
from traceopt.reports.words.part_styles import part_style
from traceopt.reports.words.rank_words import rank_phrase
from traceopt.reports.words.step_words import unusual_steps
from traceopt.result.document import Result
from traceopt.result.sections.work_rows import StepPart, StepSeries
from traceopt.result.words.quantities import counted, ms_of_us

TITLE = "Recorded steps"
RUN = "Step time over the whole run"
FEWEST_SLID = 40  # fewer steps are wide enough without a range slider
MOST_BARS = 100  # more steps are areas, which a browser draws a hundred times faster
ABOVE_STEP, CHECKPOINTS, EVALUATIONS, ROOM_ABOVE = 1.05, 1.11, 1.16, 1.2  # heights of marks, times the highest step


def draw(document: Result) -> FigureDict:
    """A column for each step, with a range slider below if there are many."""
    series = document.step.series
    if series is None or not any(totals := step_totals(series)):
        return nothing(TITLE, "Fewer than two steps were recorded.")
    typical_us = document.step.typical_us
    top_us = min(max(totals), HIGHEST * (typical_us or max(totals)))
    unit, numbers = time_unit(top_us), _numbers(series)
    count, rank = counted(len(numbers), "recorded step"), rank_phrase(document)
    dashed = f"Dashed: the typical step, {ms_of_us(typical_us)}." if typical_us else ""
    ordered = sorted(series.parts, key=lambda part: (not part.busy, -sum(part.us)))
    drawn = [
        {
            **(_columns if len(numbers) <= MOST_BARS else _area)(part, numbers, unit),
            "showlegend": max(part.us) >= LEGEND_SHARE * top_us,
        }
        for part in ordered
    ]
    return figure(
        TITLE,
        [whole("Step", numbers, totals, unit), *drawn, *_marks(document, series, numbers, top_us, unit)],
        subtitle=" ".join(
            filter(None, [f"{count}, {rank}." if rank else f"{count}.", dashed, unusual_steps(document)])
        ),
        barmode="stack",
        bargap=0.15,
        height=500,
        hovermode="x unified",
        xaxis={
            "title": "step",
            "type": "linear",
            **whole_ticks(numbers[0], numbers[-1]),
            "range": [numbers[0] - 0.5, numbers[-1] + 0.5],
            "unifiedhovertitle": {"text": "Step %{x}"},
            "rangeslider": {"visible": len(numbers) >= FEWEST_SLID, "thickness": 0.12},
        },
        yaxis={"title": unit, "range": scaled([0, top_us * ROOM_ABOVE], unit)},
        shapes=[_dashed("y", height) for height in scaled([typical_us], unit) if height],
    )


def draw_run(document: Result) -> FigureDict:
    """The median of each stretch of the whole run. A dashed line marks the step from which on it is different."""
    history = document.whole_run.history if document.whole_run is not None else None
    if history is None or len(history.us) < 2 or max(history.us) <= 0:
        return nothing(RUN, "Too few steps ran without the profiler.")
    unit = time_unit(max(history.us))
    line: Trace = {
        "type": "scatter",
        "mode": "lines",
        "name": "Step",
        "x": history.first_steps,
        "y": scaled(history.us, unit),
        "hovertemplate": under_pointer(unit),
        "line": {"color": color("compute")},
    }
    return figure(
        RUN,
        [line],
        subtitle="Medians of stretches of steps, without evaluations and saves.",
        yaxis={"title": unit, "rangemode": "tozero"},
        shapes=[] if history.change_step is None else [_dashed("x", history.change_step)],
        **along_run(history.first_steps),
    )


def _columns(part: StepPart, numbers: Sequence[int], unit: str) -> Trace:
    return {
        **_times(part, numbers, unit),
        "type": "bar",
        "y": scaled((us or None for us in part.us), unit),
        "marker": marker(part_style(part.name, part.busy)),
    }


def _area(part: StepPart, numbers: Sequence[int], unit: str) -> Trace:
    return {
        **_times(part, numbers, unit),
        "type": "scatter",
        "mode": "lines",
        "stackgroup": "parts",
        "y": scaled(part.us, unit),
        "line": {"color": color(part_style(part.name, part.busy).color), "shape": "hvh", "width": 0},
        "fillcolor": color(part_style(part.name, part.busy).color),
    }


def _times(part: StepPart, numbers: Sequence[int], unit: str) -> Trace:
    return {"name": label(part.label), "x": numbers, "hovertemplate": under_pointer(unit)}


def _numbers(series: StepSeries) -> list[int]:
    """The numbers in the names of the steps if they count upwards, else their places among the recorded steps."""
    named = [int(step_label(series, index).lstrip("#")) for index in range(len(series.names))]
    counts = all(one < other for one, other in pairwise(named))
    return named if counts else list(range(series.first + 1, series.first + len(named) + 1))


def _marks(document: Result, series: StepSeries, numbers: Sequence[int], top_us: float, unit: str) -> list[Trace]:
    """Unusual steps above their columns, evaluations and checkpoints in a row each."""
    totals = step_totals(series)
    notes = enumerate(step_marks(document, series, totals))
    unusual = {at: f"step {numbers[at]}, {note.removeprefix('unusual: ')}" for at, note in notes if note}
    above = [min(totals[at], top_us) * ABOVE_STEP for at in unusual]
    saved, evaluated = ({at: f"in step {numbers[at]}" for at in marked} for marked in (series.saved, series.evaluated))
    kinds = (
        ("Unusual", "triangle-up", "high", unusual, above),
        ("Checkpoint", "square", "ink", saved, [top_us * CHECKPOINTS] * len(saved)),
        ("Evaluation", "diamond", "link", evaluated, [top_us * EVALUATIONS] * len(evaluated)),
    )
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": [numbers[at] for at in texts],
            "y": scaled(heights_us, unit),
            "text": [plain(text) for text in texts.values()],
            "hovertemplate": "%{text}",
            "marker": {
                "symbol": symbol,
                "size": 10,
                "color": color(token),
                "line": {"color": color("bg"), "width": 1.5},
            },
        }
        for name, symbol, token, texts, heights_us in kinds
        if texts
    ]


def _dashed(axis: Literal["x", "y"], place: float) -> Trace:
    """A line across the figure, at a place of this axis."""
    other = "y" if axis == "x" else "x"
    ends = {f"{axis}0": place, f"{axis}1": place, f"{other}0": 0, f"{other}1": 1, f"{other}ref": "paper"}
    return {"type": "line", **ends, "line": {"color": color("mute"), "width": 1, "dash": "dash"}}
