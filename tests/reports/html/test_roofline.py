"""The roofline chart and the table of launches in the HTML report."""

from __future__ import annotations

import re

import pytest
import sample
from msgspec.structs import replace

from traceopt.reports.html.charts.roofline import HEIGHT, WIDTH, Roofline, draw_roofline
from traceopt.reports.html.page import render_html
from traceopt.result.document import Result


def drawn(result: Result) -> Roofline:
    roofline = draw_roofline(result, 100)
    assert roofline is not None
    return roofline


def test_a_share_of_a_peak_has_one_column() -> None:
    """The roofline's is the share of the compute peak where compute is the limit."""
    page = render_html(sample.with_points())
    assert page.count(">Of roofline</th>") == 2
    assert "Of compute peak" not in page


def test_the_key_has_the_kinds_that_are_drawn_and_the_slope_its_bandwidth() -> None:
    both, matmuls = sample.with_points(), replace(sample.with_points(), shaped_ops=[])
    assert [name for _, name in drawn(both).kinds] == ["Matmul", "Convolution or attention"]
    assert [name for _, name in drawn(matmuls).kinds] == ["Matmul"]
    slope = drawn(both).slope
    assert slope.label == "3,350 GB/s"
    assert 0 < slope.left < 100
    assert 0 < slope.top < 100
    assert "Arithmetic intensity in FLOP/byte" in render_html(both)


def test_dots_lead_to_their_rows_and_lie_below_the_roof() -> None:
    drawn = draw_roofline(sample.with_points(), 100)
    assert drawn is not None
    page = render_html(sample.with_points())
    ids = set(re.findall(r'<tr id="([\w-]+)"', page))
    assert {dot.anchor for dot in drawn.dots} <= ids
    assert all(0 <= dot.x <= WIDTH and 0 <= dot.y <= HEIGHT for dot in drawn.dots)
    [roof] = drawn.roofs
    (_, start), (ridge, top), (end, flat) = (map(float, point.split(",")) for point in roof.points.split())
    assert start > top == flat
    assert ridge < end
    assert all(dot.y >= top for dot in drawn.dots)
    assert max(drawn.dots, key=lambda dot: dot.radius) == drawn.dots[0]
    assert "of the fp32 peak" in drawn.summary
    assert drawn.answer in page, "the chart's answer stands above it"
    assert drawn.answer.startswith("The longest shape, ")
    assert f'aria-label="{drawn.summary}"'.replace("&", "&amp;") in page


def test_axes_have_enough_values() -> None:
    drawn = draw_roofline(sample.with_points(), 100)
    assert drawn is not None
    assert len(drawn.across) >= 3
    assert all(0 <= tick.at <= 100 for tick in (*drawn.across, *drawn.up))


def test_no_chart_without_peaks_or_bytes() -> None:
    known = sample.with_points()
    unknown = replace(known, run=replace(known.run, device=replace(known.run.device, peaks=[])))
    assert draw_roofline(unknown, 100) is None
    assert draw_roofline(sample.rich(), 100) is None
    assert 'id="roofline"' not in render_html(sample.rich())


@pytest.mark.parametrize("recorded", [True, False])
def test_launches_have_only_columns_that_are_recorded(recorded: bool) -> None:
    rich = sample.rich()
    launch = {
        "blocks_per_call": 2_666.7, "threads_per_block": 64, "registers_per_thread": 88, "shared_bytes_per_block": 3328,
        "occupancy": 0.3,
    }  # fmt: skip
    more = launch if recorded else {}
    spread = {"shortest_us": 323.0, "median_us": 406.5, "longest_us": 1017.0, "streams": "7, 20"}
    page = render_html(replace(rich, kernels=[replace(kernel, **spread, **more) for kernel in rich.kernels]))
    table = page[page.index('id="launches-table"') :].partition("</table>")[0]
    assert ">1,017.0<" in table
    assert ">7, 20" in table
    for heading in ("Occupancy (est.)", "Registers", "Blocks (mean)"):
        assert (heading in table) is recorded
    assert (">88<td class=num>3.2<" in table) is recorded
