"""What the page draws: the step in parts, ticks, dense lanes, memory, ranks."""

from __future__ import annotations

import re

import pytest
import sample
from msgspec.structs import replace
from support.page_parts import page_of, visible

from traceopt.analyzer.memory.composition import ACTIVATIONS, GRADIENTS, OPTIMIZER_STATE, OTHER, PARAMETERS, TEMPORARY
from traceopt.analyzer.vocabulary.causes.table import DATA_LOADING, INPUT_WORK
from traceopt.reports.figures import steps
from traceopt.reports.html.charts.rank_chart import MAX_COLUMNS, draw_ranks
from traceopt.reports.html.charts.timeline_svg import draw_memory, draw_timeline, thinned, ticks
from traceopt.reports.html.part_answers import part_answers
from traceopt.reports.words.charts.rank_parts import rank_parts
from traceopt.reports.words.display import for_display
from traceopt.reports.words.fixes.headline import Tile, tiles
from traceopt.reports.words.memory_parts import MEMORY_PARTS
from traceopt.reports.words.part_styles import part_style
from traceopt.result.sections.run import RunMemory, WholeRun
from traceopt.result.sections.work_rows import MemoryPoint


def test_waiting_for_data_and_input_work_have_their_own_color() -> None:
    assert DATA_LOADING.look.color != INPUT_WORK.look.color
    assert DATA_LOADING.span.color != INPUT_WORK.span.color


def test_parts_are_sorted_by_size_on_each_side() -> None:
    rich = sample.rich()
    turned = replace(rich, breakdown=rich.breakdown[::-1])
    assert [part.name for part in for_display(turned).breakdown] == [part.name for part in for_display(rich).breakdown]
    for busy in (False, True):
        times = [part.us_per_step for part in for_display(turned).breakdown if part.busy is busy]
        assert times == sorted(times, reverse=True)


def test_unknown_parts_and_categories_are_drawn_grey() -> None:
    assert part_style("new_cause", busy=False) == part_style("other_cause", busy=False)
    assert part_style("new_cause", busy=False).pattern
    assert not part_style("new_work", busy=True).pattern
    assert all(part_style(name, busy=False).pattern for name in ("data_loading", "compute", "new"))
    rich = sample.rich()
    parts = [replace(part, name="new") for part in rich.breakdown]
    assert "var(--other)" in page_of(replace(rich, breakdown=parts))


@pytest.mark.parametrize(
    ("end_us", "labels"),
    [
        (412_000, ["0 ms", "100", "200", "300", "412.0 ms"]),
        (8_400, ["0 ms", "2", "4", "6", "8.4 ms"]),
        (350, ["0.0 ms", "0.1", "0.2", "0.35 ms"]),
        (43_425_400, ["0 s", "10", "20", "30", "43.4 s"]),
    ],
)
def test_ticks_are_round(end_us: float, labels: list[str]) -> None:
    assert [tick.label.replace("\u00a0", " ") for tick in ticks(end_us)] == labels


def test_dense_lanes_are_drawn_as_occupancy() -> None:
    timeline = sample.rich().timeline
    assert timeline is not None
    drawn = draw_timeline(timeline, "GPU idle")
    gpu = drawn.lanes[3]
    assert gpu.occupancy
    assert not gpu.bars
    assert [stall.color for stall in gpu.stalls] == ["loader", "sync"]
    assert drawn.lanes[1].bars
    assert drawn.band is not None
    assert drawn.band.left == pytest.approx(9 / 412 * 100, abs=0.01)


def test_memory_keeps_its_extremes() -> None:
    stress = sample.stress()
    few = thinned(stress.memory.curve)
    assert len(few) <= 300
    for choose in (min, max):
        assert choose(p.allocated_bytes for p in few) == choose(p.allocated_bytes for p in stress.memory.curve)
    assert [point.us for point in few] == sorted(point.us for point in few)
    assert draw_memory(sample.cpu_only().memory, None) is None


def test_memory_that_does_not_change_is_not_drawn() -> None:
    rich = sample.rich()
    flat = replace(rich.memory, curve=[MemoryPoint(0.0, 1 << 30, None)], composition=[])
    assert draw_memory(flat, rich.timeline) is None
    assert 'id="memory"' not in page_of(replace(rich, memory=flat))


def test_the_curve_of_memory_is_as_long_as_the_step_of_the_host() -> None:
    """The GPU's step may begin later and be shorter, as in the timeline."""
    rich = sample.rich()
    drawn = draw_memory(replace(rich.memory, curve_us=500_000), rich.timeline)
    assert drawn is not None
    assert drawn.ticks[-1].label == "500.0\u00a0ms"
    assert "Time of the host, which allocates before the GPU runs the work." in visible(page_of(rich))


def test_the_memory_of_a_cpu_run_is_that_of_its_process() -> None:
    cpu, rich = sample.cpu_only(), sample.rich()
    recorded = replace(cpu, memory=replace(rich.memory, peak_allocated_bytes=40 << 20))
    assert tiles(recorded)[-1] == Tile("Peak memory", "40.0", "MiB", "of tensors, from the start of the recording")
    memory = [RunMemory("process", [0, 9], [1 << 28, 3 << 28])]
    run = WholeRun(1e6, 10, [], memory=memory)
    assert tiles(replace(recorded, whole_run=run))[-1] == Tile(
        "Process memory", "0.75", "GiB", "the most at the end of a step"
    )


def test_the_step_after_the_fixes_is_drawn_in_parts() -> None:
    rich = sample.rich()
    page = page_of(rich)
    assert "Remaining: Waiting for launches ≈ 61 ms; Waiting for data ≈ 37 ms" in page
    assert 'class="left"' not in page
    assert rich.combined is not None
    whole = page_of(replace(rich, combined=replace(rich.combined, breakdown_after=[])))
    assert 'class="left"' in whole
    assert "What is left" not in whole


def test_every_part_of_the_memory_has_a_remedy() -> None:
    assert set(MEMORY_PARTS) == {PARAMETERS, GRADIENTS, OPTIMIZER_STATE, ACTIVATIONS, TEMPORARY, OTHER}
    text = visible(page_of(sample.rich()))
    assert "Memory at the peak" in text
    assert "activation checkpointing; smaller micro-batches" in text


def test_ranks_are_drawn_in_parts_that_sum_to_their_step() -> None:
    rows = sample.many_ranks().ranks
    parts = rank_parts(rows)
    for index, row in enumerate(rows):
        assert sum(part.us[index] or 0 for part in parts) == pytest.approx(row.step_us)
    assert [part.label for part in parts if part.us[7]] == [part.label for part in parts]
    assert [part.us[6] for part in parts if part.label == "Waiting for data"] == [0]
    drawing = draw_ranks(sample.many_ranks())
    assert drawing is not None
    assert [len(path.split("M")) - 1 for path in drawing.paths] == [64, 64, 1, 64]
    many = draw_ranks(sample.many_ranks(700))
    assert many is not None
    assert len(many.names) == MAX_COLUMNS


def test_a_rank_without_a_step_leaves_a_gap() -> None:
    rich = sample.rich()
    assert [part.us[3] for part in rank_parts(rich.ranks)] == [None] * 4
    assert draw_ranks(replace(rich, ranks=rich.ranks[3:])) is None
    assert "The typical step takes 412.0 ms on every rank." in page_of(rich)
    cpu = [replace(row, gpu_busy_share=None) for row in rich.ranks]
    assert "GPU" not in " ".join(part.label for part in rank_parts(cpu))


def test_a_bar_has_its_name_where_nothing_covers_it() -> None:
    timeline = sample.rich().timeline
    assert timeline is not None
    outer, inner = sample.span(0, 400, "outer", "cpu"), sample.span(50, 350, "inner", "wait")
    lane = replace(timeline.lanes[0], spans=[outer, inner])
    bars = draw_timeline(replace(timeline, lanes=[lane]), None).lanes[0].bars
    assert [bar.label for bar in bars] == ["outer", "inner", "outer"]
    assert sum(bar.width for bar in bars) == pytest.approx(400 / 412 * 100, abs=0.1)


def test_the_key_names_what_is_drawn_and_no_more() -> None:
    drawn = draw_timeline(sample.rich().timeline, "GPU idle")
    assert [word for _, word in drawn.key] == [
        "CPU working", "CPU waiting", "Waiting for data", "GPU compute", "Communication", "Copies",
    ]  # fmt: skip
    assert drawn.stall_key == [("loader", "Waiting for data"), ("sync", "Waiting for the host")]


def test_the_longest_parts_without_room_have_names_below_the_bar() -> None:
    """Tiny parts before a long one took its place, although its name says more."""
    rich = sample.rich()
    known = {part.name: part for part in rich.breakdown}
    ms = {"data_loading": 80.0, "launch": 0.4, "host_sync": 0.4, "untraced": 0.4, "compute": 15.0, "copies": 3.0}
    parts = [replace(known[name], us_per_step=time * 1000) for name, time in ms.items()]
    below = {one.part.name: one.below for one in part_answers(replace(rich, breakdown=parts), [], gpu_measured=True)}
    assert {name for name, place in below.items() if place} == {"compute", "copies"}
    assert below["copies"] is not None
    assert below["copies"].left is None, "it ends with the bar"


def test_navigation_has_the_order_of_the_page() -> None:
    page = page_of(sample.rich())
    anchors = re.findall(r'href="#([\w-]+)"', page[page.index('id="links"') : page.index("</nav>")])
    places = [page.index(f'id="{anchor}"') for anchor in anchors]
    assert len(places) > 8
    assert places == sorted(places)


def test_legends_name_no_part_that_is_too_thin_to_see() -> None:
    rich = sample.rich()
    series = rich.step.series
    assert series is not None
    thin = [replace(part, us=[us / 1000 for us in part.us]) if n else part for n, part in enumerate(series.parts)]
    drawn = steps.draw(replace(rich, step=replace(rich.step, series=replace(series, parts=thin))))
    named = [trace["name"] for trace in drawn["data"] if trace["type"] == "bar" and trace["showlegend"]]
    assert named == [thin[0].label]


def test_a_peak_without_a_curve_is_told_all_the_same() -> None:
    rich = sample.rich()
    text = visible(page_of(replace(rich, memory=replace(rich.memory, curve=[]))))
    assert "GPU memory in one step Peak 23.4 GiB of 79.6 GiB, rank 0 of 4. 21.9 GiB Part Size" in text
