"""The Plotly figures behind "Zoom and hover", as plain dicts because Plotly's figure classes are slow to import.

Colours are written "var(--token)". main.js resolves them when it draws, so one figure serves both themes. Plotly reads
pseudo-HTML in names, which could turn a kernel's name into a link, so every name goes through `plotly_text`.
"""

from __future__ import annotations

from typing import Any

from traceopt.reports.html.rank_chart import MAX_COLUMNS, rank_names, rank_parts
from traceopt.reports.html.timeline_svg import band, compute_row, memory_end_us, thinned
from traceopt.reports.words.part_styles import part_style, span_colour
from traceopt.result import quantities
from traceopt.result.document import Memory
from traceopt.result.rows import Lane, RankRow, Span, Timeline

ZOOM_SPANS = 2_000  # the longest of all lanes; more would make the page slow and large
BAR_WIDTH = 0.56
LANE_HEIGHT_PX = 38
GIB = 1 << 30

Figure = dict[str, Any]

_SPAN_HOVER = "%{customdata[0]}<br>%{customdata[2]} ms, starts at %{customdata[1]} ms<extra></extra>"
_BARS: Figure = {"type": "bar", "orientation": "h", "width": BAR_WIDTH, "showlegend": False}
_FONT: Figure = {"family": "system-ui,sans-serif", "size": 12, "color": "var(--ink)"}
_LAYOUT: Figure = {
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "font": _FONT,
    "showlegend": False,
    "dragmode": "zoom",
    "hoverlabel": {
        "bgcolor": "var(--card)",
        "bordercolor": "var(--line2)",
        "font": {"color": "var(--ink)"},
        "align": "left",
    },
}
_AXIS: Figure = {"gridcolor": "var(--grid)", "zeroline": False, "tickfont": {"color": "var(--mute)"}}


def plotly_text(value: str) -> str:
    """Text that Plotly prints literally."""
    return value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _milliseconds(us: float) -> float:
    return round(us / 1_000, 4)


def _time_axis(end_us: float) -> Figure:
    return {**_AXIS, "range": [0, _milliseconds(end_us)], "ticksuffix": " ms"}


def zoom_spans(timeline: Timeline) -> list[tuple[int, Span]]:
    """The longest ZOOM_SPANS spans with the height of their lane (the first lane is on top)."""
    placed = [(len(timeline.lanes) - 1 - row, span) for row, lane in enumerate(timeline.lanes) for span in lane.spans]
    if len(placed) <= ZOOM_SPANS:
        return placed
    longest = sorted(range(len(placed)), key=lambda index: -placed[index][1].duration_us)[:ZOOM_SPANS]
    return [placed[index] for index in sorted(longest)]


def timeline_figure(timeline: Timeline, idle_word: str | None) -> Figure:
    """One bar trace per colour. Hovering shows name, duration and start."""
    placed = zoom_spans(timeline)
    traces = []
    for colour in sorted({span_colour(span.category) for _, span in placed}):
        mine = [(height, span) for height, span in placed if span_colour(span.category) == colour]
        traces.append(
            {
                **_BARS,
                "y": [height for height, _ in mine],
                "base": [_milliseconds(span.start_us) for _, span in mine],
                "x": [_milliseconds(span.duration_us) for _, span in mine],
                "marker": {"color": f"var(--{colour})", "line": {"width": 0}},
                # Names only; main.js adds start and duration. (%{x} of a bar with a base is its end.)
                "customdata": [[plotly_text(span.name)] for _, span in mine],
                "hovertemplate": _SPAN_HOVER,
            }
        )
    gpu_row = compute_row(timeline)
    if idle_word is not None and gpu_row is not None:
        traces.extend(_stall_traces(timeline, len(timeline.lanes) - 1 - gpu_row, idle_word))
    lanes = len(timeline.lanes)
    layout = {
        **_LAYOUT,
        "barmode": "overlay",
        "height": LANE_HEIGHT_PX * lanes + 58,
        "margin": {"l": 0, "r": 6, "t": 22, "b": 26},
        "annotations": [_lane_name(lane, lanes - 1 - row) for row, lane in enumerate(timeline.lanes)],
        "xaxis": _time_axis(timeline.duration_us),
        "yaxis": {"range": [-0.55, lanes - 0.3], "visible": False, "fixedrange": True},
    }
    layout |= _band_shape(timeline, idle_word, layout["annotations"])
    return {"data": traces, "layout": layout}


def _band_shape(timeline: Timeline, idle_word: str | None, annotations: list[Figure]) -> Figure:
    """The longest stall, shaded across the lanes as in the static timeline, with its label above."""
    shaded = band(timeline, idle_word)
    if shaded is None:
        return {}
    start = shaded.left / 100 * _milliseconds(timeline.duration_us)
    end = start + shaded.width / 100 * _milliseconds(timeline.duration_us)
    late = shaded.left > 55
    line = {"color": f"var(--{shaded.colour})", "width": 1, "dash": "dash"}
    shape = {"type": "rect", "xref": "x", "yref": "paper", "x0": start, "x1": end, "y0": 0, "y1": 1, "layer": "below"}
    label = {
        "x": end if late else start,
        "y": 1,
        "yref": "paper",
        "xanchor": "right" if late else "left",
        "yanchor": "bottom",
        "text": f"<b>{plotly_text(shaded.label)}</b>",
        "showarrow": False,
    }
    return {"shapes": [{**shape, "fillcolor": "var(--shade)", "line": line}], "annotations": [*annotations, label]}


def _stall_traces(timeline: Timeline, height: int, idle_word: str) -> list[Figure]:
    """Stalls as hatched bars in the GPU lane, one trace per colour."""
    traces = []
    for colour in sorted({part_style(stall.cause, busy=False).colour for stall in timeline.stalls}):
        mine = [stall for stall in timeline.stalls if part_style(stall.cause, busy=False).colour == colour]
        pattern = {
            "shape": "/",
            "fgcolor": f"var(--{colour})",
            "bgcolor": "var(--shade)",
            "size": 7,
            "solidity": 0.35,
        }
        traces.append(
            {
                **_BARS,
                "y": [height] * len(mine),
                "base": [_milliseconds(stall.start_us) for stall in mine],
                "x": [_milliseconds(stall.duration_us) for stall in mine],
                "marker": {"color": "var(--shade)", "pattern": pattern, "line": {"width": 0}},
                "customdata": [
                    [plotly_text(f"{idle_word} {quantities.ms_of_us(stall.duration_us)}: {stall.label}")]
                    for stall in mine
                ],
                "hovertemplate": "%{customdata[0]}<extra></extra>",
            }
        )
    return traces


def _lane_name(lane: Lane, height: int) -> Figure:
    name = lane.name if len(lane.name) <= 24 else lane.name[:23] + "…"
    return {
        "name": "lane",
        "x": 0,
        "xref": "paper",
        "y": height + 0.47,
        "yref": "y",
        "text": f"<b>{plotly_text(name)}</b>",
        "showarrow": False,
        "xanchor": "left",
        "yanchor": "middle",
    }


def ranks_figure(rows: list[RankRow]) -> Figure:
    """One stacked column per rank. Hovering shows the part and its time."""
    rows = rows[:MAX_COLUMNS]
    names = rank_names(rows)
    traces = [
        {
            "type": "bar",
            "showlegend": False,
            "x": names,
            "y": [None if us is None else _milliseconds(us) for us in part.us],
            "marker": {"color": f"var(--{part.colour})", "line": {"width": 0}, "pattern": _pattern(part.pattern)},
            "customdata": [quantities.ms_of_us(us) for us in part.us],
            "hovertemplate": f"rank %{{x}}<br>{part.label}: %{{customdata}}<extra></extra>",
        }
        for part in rank_parts(rows)
    ]
    layout = {
        **_LAYOUT,
        "barmode": "stack",
        "bargap": 0.2,
        "height": 240,
        "margin": {"l": 62, "r": 6, "t": 8, "b": 26},
        "xaxis": {**_AXIS, "type": "category", "nticks": 16},
        "yaxis": {**_AXIS, "ticksuffix": " ms", "fixedrange": True},
    }
    return {"data": traces, "layout": layout}


def _pattern(name: str) -> Figure:
    """The Plotly pattern closest to a `p-` class of report.css."""
    shape = {"diagonal": "/", "dots": "."}.get(name, "")
    return {"shape": shape, "fgcolor": "var(--stripe)", "size": 7, "solidity": 0.4, "fillmode": "overlay"}


def memory_figure(memory: Memory, timeline: Timeline | None) -> Figure:
    """Allocated memory over the step, and the memory reserved by the caching allocator as a dashed line."""
    points = thinned(memory.curve)
    end_us = memory_end_us(memory, timeline)
    times = [_milliseconds(point.us) for point in points]
    allocated = [round(point.allocated_bytes / GIB, 4) for point in points]
    reserved = max([point.reserved_bytes or 0 for point in points] + [memory.peak_reserved_bytes or 0]) / GIB
    trace = {
        "type": "scatter",
        "mode": "lines",
        "fill": "tozeroy",
        "line": {"color": "var(--compute)", "width": 1.6, "shape": "hv"},
        "x": times,
        "y": allocated,
        "customdata": [[quantities.size_text(p.allocated_bytes), quantities.ms_of_us(p.us)] for p in points],
        "hovertemplate": "%{customdata[0]} at %{customdata[1]}<extra></extra>",
    }
    layout = {
        **_LAYOUT,
        "height": 220,
        "margin": {"l": 56, "r": 6, "t": 8, "b": 26},
        "xaxis": _time_axis(end_us),
        "yaxis": {
            **_AXIS,
            "range": [0, max([*allocated, reserved]) * 1.12 or 1],
            "ticksuffix": " GiB",
            "fixedrange": True,
        },
    }
    if reserved:
        dashed = {"color": "var(--mute)", "dash": "dash", "width": 1}
        layout["shapes"] = [
            {
                "type": "line",
                "xref": "paper",
                "x0": 0,
                "x1": 1,
                "y0": reserved,
                "y1": reserved,
                "line": dashed,
            }
        ]
    return {"data": [trace], "layout": layout}
