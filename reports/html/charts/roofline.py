"""The roofline: what each shape reaches (TFLOP/s) by its arithmetic intensity (FLOP/byte), below the device's peaks."""

from __future__ import annotations

import math

from msgspec import Struct

from traceopt.reports.html.charts.axes import Tick
from traceopt.reports.words.charts.roofline_shapes import roofline_shapes, shape_text
from traceopt.result.document import Result
from traceopt.result.sections.work_rows import Gemm
from traceopt.result.words import quantities

WIDTH, HEIGHT = 600, 220  # of the viewBox
FEWEST, MOST = 2, 60  # points; the longest
NAMED = 4  # points described in words
SMALLEST, LARGEST = 2.5, 9.0  # radius, by share of the time
FEWEST_TICKS = 3  # with fewer powers of ten, 2 and 5 times these as well
KINDS = [("matmul", "Matmul"), ("other", "Convolution or attention")]
SLOPE_LABEL = 0.6  # of the way up the slope
ROOM = 1.6  # factor between the outer values and the edges


class RoofDot(Struct, frozen=True):
    """A shape, with the anchor of its row; `x`, `y` and `radius` are in the viewBox."""

    anchor: str
    x: float
    y: float
    radius: float
    kind: str  # "matmul" or "other"
    text: str


class Roof(Struct, frozen=True):
    """The roof of a type: the bandwidth up to the ridge, then the peak; `top` is the peak, per cent from the top."""

    label: str
    points: str
    top: float


class Slope(Struct, frozen=True):
    """The label of the bandwidth, and the point of the slope where it stands, per cent from the left and the top."""

    label: str
    left: float
    top: float


class Roofline(Struct, frozen=True):
    """`dots` from the longest on; `kinds` of them; `answer` is of the longest; `summary` describes them in words."""

    dots: list[RoofDot]
    kinds: list[tuple[str, str]]  # as in a dot, and its name
    roofs: list[Roof]
    slope: Slope
    across: list[Tick]
    up: list[Tick]
    left_out: int
    above: bool  # some dots are above the roof
    answer: str
    summary: str


class _Scale(Struct, frozen=True):
    low: float
    high: float
    size: float

    def at(self, value: float) -> float:
        return math.log(value / self.low) / math.log(self.high / self.low) * self.size

    def ticks(self, downward: bool) -> list[Tick]:
        powers = range(math.floor(math.log10(self.low)), math.floor(math.log10(self.high)) + 1)
        tens = [10.0**power for power in powers]
        between = [factor * ten for ten in tens for factor in (1, 2, 5)]
        few = sum(self.low <= ten <= self.high for ten in tens) < FEWEST_TICKS
        found = [(v, self.at(v) / self.size * 100) for v in (between if few else tens) if self.low <= v <= self.high]
        return [Tick(100 - at if downward else at, f"{value:,g}") for value, at in found]


def draw_roofline(result: Result, gemm_rows: int) -> Roofline | None:
    """None unless the peaks of memory and of a type are known, and at least two shapes have bytes. `gemm_rows`: rows of
    each table by shape, which a dot leads to.
    """
    peaks = {peak.figure: peak.rate for peak in (result.run.device.peaks if result.run.device else [])}
    bandwidth = peaks.get("memory")
    every = sorted(roofline_shapes(result, gemm_rows), key=lambda one: -one[1].us_per_step)
    shapes = [one for one in every if one[1].dtype in peaks]
    if not bandwidth or len(shapes) < FEWEST:
        return None
    shown = shapes[:MOST]
    dtypes = sorted({row.dtype or "" for _, row, _ in shown})
    intensities = [row.intensity or 1.0 for _, row, _ in shown]
    ridges = [peaks[dtype] * 1e3 / bandwidth for dtype in dtypes]
    rates = [row.tflops or 1.0 for _, row, _ in shown]
    across = _Scale(min(*intensities, min(ridges) / 4) / ROOM, max(*intensities, *ridges) * ROOM, WIDTH)
    highest = max(*rates, *(peaks[dtype] for dtype in dtypes))
    up = _Scale(max(min(rates), highest / 1e5) / ROOM, highest * ROOM, HEIGHT)
    longest_us = max(row.us_per_step for _, row, _ in shown)
    dots = [
        RoofDot(
            anchor=anchor,
            x=round(across.at(row.intensity or 1.0), 1),
            y=round(HEIGHT - max(0.0, up.at(row.tflops or 1.0)), 1),
            radius=round(max(SMALLEST, LARGEST * math.sqrt(row.us_per_step / longest_us)), 1),
            kind="matmul" if isinstance(row, Gemm) else "other",
            text=shape_text(name, row),
        )
        for anchor, row, name in shown
    ]
    roofs = [_roof(dtype, peaks[dtype], bandwidth, across, up) for dtype in dtypes]
    above = any((row.roof_share or 0) > 1 for _, row, _ in shown)
    named = "; ".join(dot.text for dot in dots[:NAMED])
    _, longest, name = shown[0]
    answer = (
        f"The longest shape, {name} in {longest.dtype}, reaches {quantities.percent(longest.roof_share)} of its roof."
    )
    summary = f"{quantities.counted(len(dots), 'shape')} by arithmetic intensity and TFLOP/s. The longest: {named}."
    slope = _slope(bandwidth, max(ridges), across, up)
    kinds = [pair for pair in KINDS if any(dot.kind == pair[0] for dot in dots)]
    left_out = len(shapes) - len(shown)
    return Roofline(dots, kinds, roofs, slope, across.ticks(False), up.ticks(True), left_out, above, answer, summary)


def _enters(bandwidth: float, across: _Scale, up: _Scale) -> float:
    """The intensity at which the slope enters the chart, at the left or at the bottom."""
    return max(across.low, up.low * 1e3 / bandwidth)


def _slope(bandwidth: float, ridge: float, across: _Scale, up: _Scale) -> Slope:
    start = _enters(bandwidth, across, up)
    x = start * (ridge / start) ** SLOPE_LABEL
    left, top = across.at(x) / WIDTH * 100, 100 - up.at(x * bandwidth / 1e3) / HEIGHT * 100
    return Slope(quantities.per_second(bandwidth, "GB"), left, top)


def _roof(dtype: str, peak: float, bandwidth: float, across: _Scale, up: _Scale) -> Roof:
    ridge = peak * 1e3 / bandwidth
    start = _enters(bandwidth, across, up)
    corners = [(start, start * bandwidth / 1e3), (ridge, peak), (across.high, peak)]
    points = " ".join(f"{across.at(x):.1f},{HEIGHT - up.at(y):.1f}" for x, y in corners)
    return Roof(f"{dtype} {quantities.per_second(peak, 'TFLOP')}", points, 100 - up.at(peak) / HEIGHT * 100)
