"""The Plotly figures behind "Zoom and hover", as plain dicts because Plotly's figure classes are slow to import.

Colours are written "var(--token)". main.js resolves them when it draws, so one figure serves both themes. Plotly reads
pseudo-HTML in names, which could turn a kernel's name into a link, so every name goes through `plotly_text`.
"""

from __future__ import annotations

from typing import Any

from traceopt.reports.html.timeline_svg import band, compute_row
from traceopt.reports.words.part_styles import part_style, span_colour
from traceopt.result import quantities
from traceopt.result.rows import Lane, Span, Timeline

ZOOM_SPANS = 2_000  # the longest of all lanes; more would make the page slow and large
BAR_WIDTH = 0.56
LANE_HEIGHT_PX = 38

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
