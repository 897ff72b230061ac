"""The figures of a result: Plotly accepts them, hostile names stay text, and they show what the report shows."""

from __future__ import annotations

from typing import Any

import pytest
import sample
from msgspec.structs import replace
from plotly.offline import get_plotlyjs
from support.figures import markup_in
from support.traces import GetExample

from traceopt.analysis import Analysis
from traceopt.reports.figures import breakdown, flame, idle, kernels, memory, overlaps, ranks, roofline, steps, timeline
from traceopt.reports.figures.figure import plain
from traceopt.reports.figures.figures import Figures
from traceopt.result.sections.rank_rows import GroupOverlapRow
from traceopt.result.words.quantities import NO_BREAK_SPACE

NAMES = [name for name, value in vars(Figures).items() if isinstance(value, property)]
SAMPLES = [sample.rich, sample.cpu_only, sample.empty, sample.hostile, sample.many_ranks, sample.with_points]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("make", SAMPLES, ids=lambda make: make.__name__)
def test_plotly_draws_each_figure_and_all_names_stay_text(make: Any, name: str) -> None:
    figure = getattr(Analysis.of(make()).figures, name)
    assert figure.layout.title.text
    assert figure.data or figure.layout.annotations[0].text
    assert markup_in(figure) == []
    assert "var(--" not in figure.to_json()


def test_markup_and_formulas_are_text() -> None:
    assert plain("<b>a & b</b> $x$") == "&lt;b&gt;a &amp; b&lt;/b&gt; &#36;x&#36;"


def test_the_breakdown_has_a_bar_for_now_and_one_for_after_the_plan() -> None:
    rich = sample.rich()
    drawn = breakdown.draw(rich)
    assert rich.step.typical_us is not None
    assert rich.combined is not None
    for bar, us in enumerate((rich.step.typical_us, rich.combined.step_us_after)):
        assert sum(trace["x"][bar] or 0 for trace in drawn["data"]) == pytest.approx(us / 1e3, rel=0.01)
    waiting = next(trace for trace in drawn["data"] if trace["name"] == "Waiting for data")
    assert waiting["marker"]["pattern"]["shape"] == "/"
    assert "Fix 1: " in waiting["hovertext"][0]
    assert breakdown.draw(replace(rich, combined=None))["data"][0]["y"] == ["Now"]


def test_unusual_steps_are_marked() -> None:
    step, *parts, unusual = steps.draw(sample.rich())["data"]
    assert [trace["type"] for trace in parts] == ["bar"] * 3
    assert sum(part["y"][0] or 0 for part in parts) == pytest.approx(step["y"][0], rel=0.01)
    assert parts[0]["x"] == list(range(2, 14))
    assert (unusual["x"], unusual["text"]) == ([8], ["step 8, 48% longer than the typical step"])
    rich = sample.rich()
    marked = replace(rich.step, series=replace(rich.step.series, evaluated=[3, 6], saved=[6]))
    numbers = replace(rich.step.series, names=[f"ProfilerStep#{10**20}", *rich.step.series.names[1:]])
    assert steps.draw(replace(rich, step=replace(rich.step, series=numbers)))["data"][0]["x"][:2] == [1, 3]
    *_, saved, evaluated = steps.draw(replace(rich, step=marked))["data"]
    assert [(trace["name"], trace["x"]) for trace in (saved, evaluated)] == [
        ("Checkpoint", [8]),
        ("Evaluation", [5, 8]),
    ]


def test_few_ranks_are_bars_and_many_a_heat_map() -> None:
    step, *parts = ranks.draw(sample.rich())["data"]
    assert {part["type"] for part in parts} == {"bar"}
    assert sum(part["y"][0] or 0 for part in parts) == pytest.approx(step["y"][0], rel=0.01)
    heat_map = ranks.draw(sample.many_ranks())
    rows = [row["marker"]["opacity"] for row in heat_map["data"]]
    assert len(rows) == len(heat_map["layout"]["yaxis"]["ticktext"])
    assert {len(row) for row in rows} == {64}
    assert max(value for row in rows for value in row) == 1


def test_what_overlaps_each_group_is_a_matrix() -> None:
    rows = [("mesh_dp", "mesh_tp", True, 0.1), ("mesh_dp", "matmul", False, 0.75), ("mesh_tp", "<b>", False, 0.5)]
    rich = sample.rich()
    found = [GroupOverlapRow(group, beside, other, 1e3 * share, share) for group, beside, other, share in rows]
    drawn = overlaps.draw(replace(rich, communication=replace(rich.communication, overlaps=found)))
    tensor, data = drawn["data"]  # from the bottom up
    assert (tensor["name"], data["name"]) == ("mesh_tp", "mesh_dp")
    assert data["x"] == tensor["x"] == ["matmul", "&lt;b&gt;", "mesh_tp"]
    assert data["marker"]["opacity"] == [0.45, 0.0, 0.06]
    assert (data["text"], tensor["text"]) == (["75%", "", "10%"], ["", "50%", ""])


def test_idle_time_is_drawn_by_cause() -> None:
    drawn = idle.draw(sample.rich())
    assert [trace["y"][0].split(",")[0] for trace in drawn["data"]] == ["Waiting for data", "Waiting for the host"]
    subtitle = drawn["layout"]["title"]["subtitle"]["text"].replace(NO_BREAK_SPACE, " ")
    assert subtitle == "ProfilerStep#9, 412.0 ms. Only the longest times without GPU work: 213.0 ms together."


def test_kernels_add_up_to_their_kinds() -> None:
    (tree,) = kernels.draw(sample.rich())["data"]
    values = dict(zip(tree["ids"], tree["values"], strict=True))
    for kind in {parent for parent in tree["parents"] if parent}:
        of_kind = [one for one, parent in zip(tree["ids"], tree["parents"], strict=True) if parent == kind]
        assert sum(values[one] for one in of_kind) == pytest.approx(values[kind])


def test_points_of_the_roofline_lie_below_their_roof() -> None:
    roof, matmuls, others = roofline.draw(sample.with_points())["data"]
    assert (matmuls["name"], others["name"]) == ("Matmul", "Convolution or attention")
    assert max(matmuls["y"]) < max(roof["y"]) == 67.0
    assert "70% of the fp32 peak" in matmuls["hovertext"][0]


def test_the_peak_of_the_memory_says_what_it_holds() -> None:
    *_, peak = memory.draw(sample.rich())["data"]
    assert "Activations: " in peak["hovertext"][0]


def test_a_call_is_as_wide_as_its_calls_together(example: GetExample) -> None:
    (icicle,) = flame.draw(example("five_faults").result)["data"]
    widths = dict(zip(icicle["ids"], icicle["values"], strict=True))
    for call, width in widths.items():
        below = [one for one, parent in zip(icicle["ids"], icicle["parents"], strict=True) if parent == call]
        assert sum(widths[one] for one in below) <= width
    assert "main" in icicle["labels"]


def test_the_timeline_has_a_row_for_each_lane() -> None:
    rich = sample.rich()
    assert rich.timeline is not None
    drawn = timeline.draw(rich)
    assert len(drawn["layout"]["yaxis"]["categoryarray"]) == len(rich.timeline.lanes)
    assert {row for trace in drawn["data"] for row in trace["y"]} <= set(drawn["layout"]["yaxis"]["categoryarray"])


@pytest.mark.browser
def test_a_browser_shows_hostile_names_as_text(browser: Any) -> None:
    figures = Analysis.of(sample.hostile()).figures
    drawn = "".join(getattr(figures, name).to_html(full_html=False, include_plotlyjs=False) for name in NAMES)
    page = browser.new_page()
    page.set_content(f"<title>figures</title><script>{get_plotlyjs()}</script>{drawn}")
    page.wait_for_function(f"document.querySelectorAll('.plot-container').length === {len(NAMES)}")
    assert page.locator(":is(.main-svg, .hoverlayer) :is(a, img, script, b)").count() == 0
    assert page.evaluate("[document.title, window.pwned]") == ["figures", None]
    page.close()
