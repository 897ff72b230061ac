"""What all figures share: their form, texts that stay text, the looks of parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import Any

from traceopt.analyzer.vocabulary.causes.cause import Look
from traceopt.reports.words.safe_text import clean
from traceopt.result.words import quantities

FigureDict = dict[str, Any]  # "data", a list of traces, and "layout": what plotly.js and plotly.py draw
Trace = dict[str, Any]

LABEL_CAP = 48  # characters of a label
MOST_SINGLE_TICKS = 15  # numbers that all stand at an axis
MOST_NAMES = 40  # of rows beside an axis
LINE = 90  # characters of a line under the pointer
LEGEND_SHARE = 0.01  # of a bar: smaller parts are too thin to see, and have no place in the legend
_US_PER = {"ms": 1e3, "s": 1e6}
_BYTES_PER = {"GiB": 1 << 30, "MiB": 1 << 20}
_FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "&#36;"})
_PATTERNS = {"diagonal": "/", "vertical": "|", "horizontal": "-", "dots": ".", "cross": "x"}  # Plotly's, by ours
_AXES = ("xaxis", "yaxis")


def plain(text: str) -> str:
    """Text that Plotly shows as it is: it reads some HTML in texts, and formulas between dollars."""
    return text.translate(_MARKUP)


def lines(*texts: str) -> str:
    """Texts one below the other, without the empty ones; long ones are broken."""
    return "<br>".join(plain(line) for text in texts for line in wrap(text, LINE))


def color(token: str) -> str:
    return f"var(--{token})"


def label(name: str, cap: int = LABEL_CAP) -> str:
    """A name in a legend, in a box or beside an axis, without its middle if it is long."""
    return plain(clean(name, cap))


def marker(look: Look) -> dict[str, Any]:
    """A part of the step as a bar. Idle parts have a pattern, as in the report."""
    style: dict[str, Any] = {"color": color(look.color), "line": {"color": color("bg"), "width": 1}}
    if look.pattern:
        style["pattern"] = {"shape": _PATTERNS[look.pattern], "fgcolor": color("stripe"), "fillmode": "overlay"}
        style["pattern"] |= {"size": 7, "solidity": 0.4}
    return style


def whole(name: str, places: Sequence[float | str], times_us: Iterable[float | None], unit: str) -> Trace:
    """What stacked parts add up to: not drawn, only named under the pointer."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": places,
        "y": scaled(times_us, unit),
        "hovertemplate": under_pointer(unit),
        "line": {"width": 0},
        "showlegend": False,
    }


def along_run(steps: Iterable[int]) -> dict[str, Any]:
    """The layout of lines along the steps of the whole run, by the first steps of its stretches."""
    known = list(steps)
    axis = {"title": "step", "unifiedhovertitle": {"text": "From step %{x}"}, **whole_ticks(min(known), max(known))}
    return {"height": 360, "hovermode": "x unified", "xaxis": axis}


def under_pointer(unit: str) -> str:
    """The height of a point, with three digits as in the texts of the report."""
    return f"%{{y:.3r}} {unit}"


def time_unit(top_us: float) -> str:
    """The unit of an axis of times: "ms" or "s"."""
    return quantities.time_parts(top_us)[1]


def scaled(times_us: Iterable[float | None], unit: str) -> list[float | None]:
    """Times in the unit of an axis, with as many digits as a chart can show."""
    return [None if us is None else float(f"{us / _US_PER[unit]:.5g}") for us in times_us]


def scaled_sizes(sizes: Iterable[int | None], unit: str) -> list[float | None]:
    """Bytes in the unit of an axis."""
    return [None if size is None else size / _BYTES_PER[unit] for size in sizes]


def whole_ticks(first: int, last: int) -> dict[str, Any]:
    """Of an axis that counts: without them, few numbers have halves between them."""
    return {"dtick": 1} if last - first < MOST_SINGLE_TICKS else {}


def row_of_cells(
    name: str, places: Sequence[float | str], colors: Sequence[str], opacities: Sequence[float], texts: Iterable[str]
) -> Trace:
    """Cells side by side, as a part of stacked bars: a bundle with true heat maps is a quarter larger."""
    return {
        "type": "bar",
        "name": label(name),
        "showlegend": False,
        "x": places,
        "y": [1] * len(places),
        "hovertext": list(texts),
        "hoverinfo": "text",
        "marker": {"color": list(map(color, colors)), "opacity": opacities, "line": {"width": 0}},
    }


def rows_axis(names: Sequence[str]) -> dict[str, Any]:
    """The axis beside rows of cells, from the bottom up. Of many rows, it names some."""
    named = range(0, len(names), -(-len(names) // MOST_NAMES))
    return {
        "range": [0, len(names)],
        "tickvals": [row + 0.5 for row in named],
        "ticktext": [label(names[row]) for row in named],
        "showgrid": False,
    }


def figure(title: str, traces: Iterable[Trace], *, subtitle: str = "", **layout: Any) -> FigureDict:
    """A figure in the report's colors. `layout` adds to what all figures share; the title of an axis is a text."""
    heading: dict[str, Any] = {"text": plain(title), "x": 0, "xref": "paper", "font": {"size": 17}}
    if subtitle:
        heading["subtitle"] = {"text": plain(subtitle), "font": {"size": 13, "color": color("mute")}}
    shared: dict[str, Any] = {
        "template": {},  # else plotly.py adds its own colors
        "title": heading,
        "font": {"family": _FONT, "size": 13, "color": color("ink")},
        "paper_bgcolor": color("bg"),
        "plot_bgcolor": color("bg"),
        "hovermode": "closest",
        "hoverlabel": {"align": "left", "bgcolor": color("card"), "font": {"family": _FONT, "color": color("ink")}},
        "margin": {"t": 80, "r": 20, "b": 20},
    }
    axes = {name: _axis(**axis) for name, axis in layout.items() if name in _AXES}
    return {"data": list(traces), "layout": {**shared, **layout, **axes}}


def _axis(title: str = "", **axis: Any) -> dict[str, Any]:
    heading = {"title": {"text": plain(title), "font": {"size": 13}, "standoff": 10}} if title else {}
    return {"gridcolor": color("grid"), "zerolinecolor": color("line2"), "automargin": True, **heading, **axis}


def nothing(title: str, reason: str) -> FigureDict:
    """An empty figure that says why it is."""
    note = {"text": plain(reason), "showarrow": False, "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5}
    return figure(title, [], height=200, annotations=[note], xaxis={"visible": False}, yaxis={"visible": False})
