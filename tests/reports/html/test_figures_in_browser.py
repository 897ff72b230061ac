"""The figures that plotly.js draws in the page: each can be hovered, zoomed and picked, and names stay text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sample
from msgspec.structs import replace

from traceopt.reports.html.page_scripts import plotly
from traceopt.result.sections.run import RunMemory, StepHistory, WholeRun
from traceopt.result.trial import TriedChange
from traceopt.run_comparison import compare

ROOT = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.skipif(plotly() is None, reason="plotly.js is not built: make, or python setup.py bundle")


def figure(page: Any, name: str) -> Any:
    """The figure in the place of a drawing, once it is drawn."""
    page.locator(f".chart:has([data-figure={name}])").scroll_into_view_if_needed()
    drawn = page.locator(f".figure[data-ready]:has(+ .drawing[data-figure={name}])")
    drawn.wait_for()
    drawn.scroll_into_view_if_needed()
    return drawn


def wait_for_hover(page: Any, text: str) -> None:
    page.wait_for_selector(f".hoverlayer:has-text('{text}')", state="attached")


def zoom(page: Any, drawn: Any) -> float:
    """Drags over a tenth of the figure. How much of its horizontal axis is then shown."""
    axis = "every => every[0].layout.xaxis.range"
    area, plot = drawn.locator(".nsewdrag").first.bounding_box(), drawn.locator(".js-plotly-plot")
    y = area["y"] + area["height"] * 0.5
    before = plot.evaluate_all(axis)
    page.mouse.move(area["x"] + area["width"] * 0.5, y)
    page.mouse.down()
    page.mouse.move(area["x"] + area["width"] * 0.6, y, steps=4)
    page.mouse.up()
    after = plot.evaluate_all(axis)
    return (after[1] - after[0]) / (before[1] - before[0])


def test_a_step_is_hovered_zoomed_and_picked(open_report) -> None:
    page = open_report(sample.rich(), figures=True)
    drawn = figure(page, "steps")
    assert not page.locator(".drawing[data-figure=steps]").is_visible()
    buttons = drawn.locator(".modebar-btn").evaluate_all("every => every.map(one => one.dataset.title)")
    assert buttons == ["Download plot as a PNG", "Zoom", "Pan", "Zoom in", "Zoom out", "Reset axes"]
    area = drawn.locator(".nsewdrag").first.bounding_box()
    x, y = area["x"] + area["width"] * 0.99, area["y"] + area["height"] * 0.9
    page.mouse.move(x, y)
    wait_for_hover(page, "Step 13")
    page.mouse.click(x, y)
    page.wait_for_selector("#steps-readout:has-text('ProfilerStep#13')")
    assert zoom(page, drawn) < 0.2
    page.focus("#steps-scrub")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("#steps-readout:has-text('ProfilerStep#12')")


def test_a_figure_that_is_drawn_leaves_the_focus_where_it_is(open_report) -> None:
    """The slider moves from the drawing, which is hidden, to the figure. Drawing may take more than a frame."""
    page = open_report(sample.rich(), figures=True)
    focused = "document.activeElement.id"
    figure(page, "steps")
    page.evaluate(
        """() => {
            const draw = Plotly.react, frame = () => new Promise(requestAnimationFrame);
            Plotly.react = (...figure) => frame().then(frame).then(frame).then(() => draw(...figure));
        }"""
    )
    page.evaluate("document.getElementById('memory-scrub').focus({ preventScroll: true })")
    assert page.locator(".figure:has(+ .drawing[data-figure=memory])").count() == 0
    assert page.evaluate(focused) == "memory-scrub"
    figure(page, "memory")
    assert page.evaluate(focused) == "memory-scrub"


@pytest.mark.parametrize(("build", "part"), [(sample.rich, "Waiting for data"), (sample.many_ranks, "Rank ")])
def test_a_rank_is_hovered_and_zoomed(open_report, build, part) -> None:
    page = open_report(build(), color_scheme="dark", figures=True)
    drawn = figure(page, "ranks")
    area = drawn.locator(".nsewdrag").first.bounding_box()
    page.mouse.move(area["x"] + area["width"] * 0.1, area["y"] + area["height"] * 0.8)
    wait_for_hover(page, part)
    assert zoom(page, drawn) < 0.9


def test_a_moment_of_the_memory_is_hovered_and_picked(open_report) -> None:
    page = open_report(sample.rich(), figures=True)
    drawn = figure(page, "memory")
    area = drawn.locator(".nsewdrag").first.bounding_box()
    x, y = area["x"] + area["width"] * 0.6, area["y"] + area["height"] * 0.5
    page.mouse.move(x, y)
    wait_for_hover(page, "GiB at ")
    page.mouse.click(x, y)
    page.wait_for_selector("#memory-readout:has-text(' allocated at 2')")
    page.focus("#memory-scrub")
    page.keyboard.press("Home")
    page.wait_for_selector("#memory-readout:has-text(' allocated at 0')")
    assert zoom(page, drawn) < 0.2


def test_a_shape_leads_to_its_row(open_report, example) -> None:
    page = open_report(example("five_faults").result, figures=True)
    drawn = figure(page, "roofline")
    page.focus("#roofline-scrub")
    page.keyboard.press("Home")
    wait_for_hover(page, "TFLOP/s at ")
    page.keyboard.press("Enter")
    page.wait_for_selector("tr.linked")
    assert page.url.endswith(page.locator("tr.linked").get_attribute("id"))
    drawn.scroll_into_view_if_needed()
    assert zoom(page, drawn) < 0.2


def test_labels_of_the_roofline_have_room(open_report) -> None:
    drawn = figure(open_report(sample.with_points(), figures=True), "roofline")
    labels = drawn.locator(".ytick text").all_text_contents()
    assert len(labels) > 1
    assert {label.replace(",", "").strip("0.") for label in labels} <= {"1", "2", "5"}
    title = drawn.locator(".ytitle").bounding_box()
    assert title["x"] + title["width"] < min(tick.bounding_box()["x"] for tick in drawn.locator(".ytick text").all())


WHOLE_RUN = WholeRun(
    us=30e6,
    steps=300,
    parts=[],
    history=StepHistory(first_steps=[0, 100, 200], us=[9e4, 9e4, 12e4], change_step=200),
    memory=[RunMemory("device", [0, 100, 200], [1 << 30, 2 << 30, 2 << 30])],
)
KEPT = TriedChange("DL001", "Load data in worker processes", "", "patch", "keep", gain_share=0.2)


@pytest.mark.parametrize(
    ("name", "text"),
    [("run", "From step 100"), ("run-memory", "From step 100"), ("way", "the script as it was")],
)
def test_the_whole_run_and_the_way_down_are_hovered_and_zoomed(open_report, name: str, text: str) -> None:
    page = open_report(replace(sample.rich(), whole_run=WHOLE_RUN, tried=[KEPT]), figures=True)
    drawn = figure(page, name)
    area = drawn.locator(".nsewdrag").first.bounding_box()
    page.mouse.move(area["x"] + area["width"] * (0.25 if name == "way" else 0.5), area["y"] + area["height"] * 0.6)
    wait_for_hover(page, text)
    assert zoom(page, drawn) < 0.9


@pytest.mark.parametrize(("name", "text"), [("parts", "Waiting for data"), ("steps", "Step 2")])
def test_the_charts_of_a_comparison_are_hovered_and_zoomed(open_report, tmp_path: Path, name: str, text: str) -> None:
    base, head = (str(ROOT / "fixtures" / "traces" / f"{trace}.json.gz") for trace in ("five_faults", "healthy"))
    (tmp_path / "comparison.html").write_text(compare(base, head).to_html(), encoding="utf-8")
    page = open_report(sample.empty())
    page.goto(f"file://{tmp_path / 'comparison.html'}")
    drawn = figure(page, name)
    area = drawn.locator(".nsewdrag").first.bounding_box()
    across, down = (0.05, 0.25) if name == "parts" else (0.5, 0.5)
    page.mouse.move(area["x"] + area["width"] * across, area["y"] + area["height"] * down)
    wait_for_hover(page, text)
    assert zoom(page, drawn) < 0.9


def test_print_and_static_keep_the_drawings(open_report) -> None:
    page = open_report(sample.rich(), figures=True)
    drawn = figure(page, "steps")
    page.emulate_media(media="print")
    assert page.locator(".drawing[data-figure=steps]").is_visible()
    assert not drawn.is_visible()
    static = open_report(sample.rich(), static=True)
    assert static.locator(".drawing[data-figure=steps]").is_visible()
    assert static.locator("#plotly-gz").count() == 0


def test_hostile_names_stay_text(open_report) -> None:
    page = open_report(sample.hostile(), figures=True)
    area = figure(page, "steps").locator(".nsewdrag").first.bounding_box()
    page.mouse.move(area["x"] + area["width"] / 2, area["y"] + area["height"] * 0.9)
    wait_for_hover(page, "Step ")
    assert page.evaluate("window.pwned || 0") == 0
    assert page.locator(".figure :is(img, script, a[href^=javascript])").count() == 0


def test_nothing_moves_when_figures_take_the_place_of_drawings(open_report) -> None:
    page = open_report(sample.rich(), figures=True)
    page.wait_for_function("document.querySelectorAll('.drawing[style*=figure-height]').length > 1")
    heights = "every => every.map(one => one.closest('.chart').getBoundingClientRect().height)"
    charts = page.locator(".drawing:visible")
    names, before = charts.evaluate_all("every => every.map(one => one.dataset.figure)"), charts.evaluate_all(heights)
    for name in names:
        figure(page, name)
    assert page.locator(".figure[data-ready]").evaluate_all(heights) == before
