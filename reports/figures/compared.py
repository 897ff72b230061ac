"""Two sides of a change: the parts of the step, the kernels that changed, and the steps of every run."""

from __future__ import annotations

from traceopt.analyzer.vocabulary.kernels.kernel_labels import short_name
from traceopt.reports.figures.figure import (
    LABEL_CAP,
    LEGEND_SHARE,
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
    whole_ticks,
)
from traceopt.reports.words.comparing.comparison_words import ROW_WORDS, calls, part_change, patterned, shown_parts
from traceopt.reports.words.names import told_apart
from traceopt.reports.words.part_styles import part_style
from traceopt.result.comparison import ComparedRun, Comparison, PartChange, RowChange
from traceopt.result.words import quantities

PARTS, KERNELS, STEPS = "Where the time goes", "Kernels that changed", "Steps of every run"
MOST_KERNELS = 20
_SIDES = ("BASE", "HEAD")
_MEAN = "Mean over the runs of each side."


def draw_parts(comparison: Comparison) -> FigureDict:
    """A bar for each side, divided as the typical step."""
    parts = sorted(shown_parts(comparison), key=lambda part: (part.busy, -part.base_us))
    if not parts:
        return nothing(PARTS, "Neither side has a breakdown of the step.")
    wholes_us = [sum(getattr(part, side) for part in comparison.breakdown) for side in ("base_us", "head_us")]
    unit = time_unit(max(wholes_us))
    return figure(
        PARTS,
        [_part(part, unit, max(wholes_us)) for part in parts],
        subtitle=f"{_MEAN} {patterned(comparison)}",
        barmode="stack",
        legend={"traceorder": "normal"},
        height=360,
        xaxis={"title": unit},
        yaxis={
            "type": "category",
            "autorange": "reversed",
            "tickvals": list(_SIDES),
            "ticktext": [lines(name, quantities.ms_of_us(us)) for name, us in zip(_SIDES, wholes_us, strict=True)],
        },
    )


def _part(part: PartChange, unit: str, whole_us: float) -> Trace:
    times = f"{quantities.ms_of_us(part.base_us)} → {quantities.ms_of_us(part.head_us)}"
    noise = ", within noise" if part.beyond_noise is False else ""
    return {
        "type": "bar",
        "orientation": "h",
        "name": label(part.label),
        "showlegend": max(part.base_us, part.head_us) >= LEGEND_SHARE * whole_us,
        "y": list(_SIDES),
        "x": scaled([part.base_us, part.head_us], unit),
        "hovertext": lines(part.label, times, f"{part_change(part)}{noise}"),
        "hoverinfo": "text",
        "marker": marker(part_style(part.name, part.busy)),
    }


def draw_kernels(comparison: Comparison) -> FigureDict:
    """How much longer or shorter the kernels take that changed most."""
    rows = sorted(comparison.kernels, key=lambda row: -abs(row.change_us))[:MOST_KERNELS]
    if not rows:
        return nothing(KERNELS, "No kernel changed noticeably, or the sides cannot be compared.")
    unit = time_unit(max(abs(row.change_us) for row in rows))
    return figure(
        KERNELS,
        [
            {
                "type": "bar",
                "orientation": "h",
                "y": list(range(len(rows))),
                "x": scaled((row.change_us for row in rows), unit),
                "hovertext": [_kernel(row) for row in rows],
                "hoverinfo": "text",
                "marker": {"color": [color("high" if row.change_us > 0 else "ok") for row in rows]},
            }
        ],
        subtitle=f"HEAD minus BASE per step. {_MEAN}",
        height=180 + 26 * len(rows),
        xaxis={"title": f"{unit} more or less per step"},
        yaxis={
            "autorange": "reversed",
            "tickvals": list(range(len(rows))),
            "ticktext": [label(name) for name in told_apart([short_name(row.name) for row in rows], LABEL_CAP)],
        },
    )


def _kernel(row: RowChange) -> str:
    times = " → ".join("–" if us is None else quantities.ms_of_us(us) for us in (row.base_us, row.head_us))
    changed_calls = calls(row)
    return lines(
        row.name,
        f"{times} ({quantities.signed_time(row.change_us)}), {ROW_WORDS[row.status]}",
        f"{changed_calls} {row.counted}" if changed_calls else "",
    )


def draw_steps(comparison: Comparison) -> FigureDict:
    """A line for each run."""
    runs = [
        (name, token, run)
        for name, token, side in zip(_SIDES, ("mute", "compute"), (comparison.base, comparison.head), strict=True)
        for run in side.runs
        if run.step_us
    ]
    if not runs:
        return nothing(STEPS, "No run has step marks.")
    unit = time_unit(max(max(run.step_us) for *_, run in runs))
    return figure(
        STEPS,
        [_run(name, token, run, unit) for name, token, run in runs],
        height=440,
        hovermode="x unified",
        xaxis={
            "title": "step, in the order of recording",
            "unifiedhovertitle": {"text": "Step %{x}"},
            **whole_ticks(1, max(len(run.step_us) for *_, run in runs)),
        },
        yaxis={"title": unit, "rangemode": "tozero"},
    )


def _run(name: str, token: str, run: ComparedRun, unit: str) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": label(f"{name} {run.label}"),
        "legendgroup": name,
        "x": list(range(1, len(run.step_us) + 1)),
        "y": scaled(run.step_us, unit),
        "hovertemplate": under_pointer(unit),
        "line": {"color": color(token), "width": 1.5},
        "marker": {"color": color(token), "size": 5},
    }
