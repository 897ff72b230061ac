"""The roofline: what each shape reaches by its arithmetic intensity, below the peaks of the device."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle

from traceopt.reports.figures.figure import FigureDict, Trace, color, figure, label, lines, nothing
from traceopt.reports.words.charts.roofline_shapes import roofline_shapes, shape_text
from traceopt.result.document import Result
from traceopt.result.sections.work_rows import Gemm, ShapedOperator
from traceopt.result.tables.step_tables import GEMMS
from traceopt.result.words import quantities

TITLE = "Roofline"
LARGEST = 26  # pixels, the diameter of the longest shape
_LOGARITHMIC = {"type": "log", "tickformat": ",~r"}  # each tick has its whole number
# So few that plotly.js labels 1, 2 and 5 of a decade, or powers of ten: with more, 900 and 1,000 overlap.
_TICKS_ACROSS, _TICKS_UP = 4, 3
_DASHES = ("solid", "dash", "dot", "longdash")  # of the roofs
_KINDS = (  # looks as in the drawing of the report
    ("Matmul", Gemm, "compute", "circle"),
    ("Convolution or attention", ShapedOperator, "loader", "square"),
)


def draw(document: Result) -> FigureDict:
    """Both axes are logarithmic; the area of a point is its time."""
    peaks = {peak.figure: peak.rate for peak in (document.run.device.peaks if document.run.device else [])}
    bandwidth = peaks.get("memory")
    shapes = [shape for shape in roofline_shapes(document, GEMMS.most) if shape[1].dtype in peaks]
    if not bandwidth or not shapes:
        return nothing(TITLE, "It needs shapes (record_shapes=True) and a device whose peaks are known.")
    intensities = [row.intensity or 1.0 for _, row, _ in shapes]
    ridges = {dtype: peaks[dtype] * 1e3 / bandwidth for dtype in sorted({row.dtype or "" for _, row, _ in shapes})}
    low, high = min(*intensities, *(ridge / 4 for ridge in ridges.values())), max(*intensities, *ridges.values())
    roofs = [
        _roof(dtype, peaks[dtype], bandwidth, (low / 2, ridge, high * 2), dash)
        for (dtype, ridge), dash in zip(ridges.items(), cycle(_DASHES), strict=False)
    ]
    return figure(
        TITLE,
        [*roofs, *_points(shapes)],
        subtitle="The area of a point is its time per step. Below the slope, memory bandwidth is the limit.",
        height=500,
        legend={"itemsizing": "constant"},
        xaxis={"title": "arithmetic intensity, FLOP/byte", "nticks": _TICKS_ACROSS, **_LOGARITHMIC},
        yaxis={"title": "TFLOP/s", "nticks": _TICKS_UP, **_LOGARITHMIC},
    )


def _points(shapes: list[tuple[str, Gemm | ShapedOperator, str]]) -> Iterable[Trace]:
    longest_us = max(row.us_per_step for _, row, _ in shapes)
    for kind, row_type, token, symbol in _KINDS:
        mine = [shape for shape in shapes if isinstance(shape[1], row_type)]
        if mine:
            yield {
                "type": "scatter",
                "mode": "markers",
                "name": kind,
                "x": [row.intensity for _, row, _ in mine],
                "y": [row.tflops for _, row, _ in mine],
                "hovertext": [_hover(row, name) for _, row, name in mine],
                "hoverinfo": "text",
                "customdata": [anchor for anchor, _, _ in mine],  # the row of the report
                "marker": {
                    "color": color(token),
                    "symbol": symbol,
                    "opacity": 0.75,
                    "size": [max(6.0, LARGEST * (row.us_per_step / longest_us) ** 0.5) for _, row, _ in mine],
                    "line": {"color": color("bg"), "width": 1},
                },
            }


def _hover(row: Gemm | ShapedOperator, name: str) -> str:
    shape, reached = shape_text(name, row).split(": ", 1)
    time = f"{quantities.ms_of_us(row.us_per_step)} per step"
    return lines(shape, reached, time, "" if row.location is None else row.location.shown)


def _roof(dtype: str, peak: float, bandwidth: float, corners: tuple[float, float, float], dash: str) -> Trace:
    """The bandwidth up to the ridge, then the peak. `corners`: the intensities of left edge, ridge and right edge."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": label(f"{dtype} {quantities.per_second(peak, 'TFLOP')}, {quantities.per_second(bandwidth, 'GB')}"),
        "x": list(corners),
        "y": [corners[0] * bandwidth / 1e3, peak, peak],
        "hoverinfo": "skip",
        "line": {"color": color("mute"), "width": 1.5, "dash": dash},
    }
