"""The strip of steps: what each column says, and choosing one with pointer and keyboard."""

from __future__ import annotations

from pathlib import Path

import pytest
import sample
from msgspec.structs import replace

from fixtures.generate import generate_ranks
from traceopt.api import analyze
from traceopt.reports.html.charts.step_strip import MOST_PATTERNED, caption, draw_steps
from traceopt.reports.html.page import render_html


def test_the_strip_draws_every_step_in_parts() -> None:
    strip = draw_steps(sample.rich())
    assert strip is not None
    assert [part.label for part in strip.parts] == ["Compute kernels", "Waiting for data", "Waiting for launches"]
    assert all(part.look.pattern for part in strip.parts[1:])
    tall = [sum(heights) for heights in zip(*(part.heights for part in strip.parts), strict=True)]
    times = sample.rich().step.per_step_us
    assert [height / tall[0] for height in tall] == pytest.approx([us / times[0] for us in times], rel=1e-3)
    assert strip.patterned


def test_unusual_steps_are_marked_and_described() -> None:
    strip = draw_steps(sample.rich())
    assert strip is not None
    assert [column.label for column in strip.marked] == ["#8"]
    text = strip.columns[6].text.replace("\u00a0", " ")
    assert text.startswith(
        "ProfilerStep#8, 610.0 ms, unusual: 48% longer than the typical step. Waiting for data 385.0 ms"
    )
    assert caption(sample.rich()) == (
        "12 recorded steps, 401.0\u00a0ms to 610.0\u00a0ms, rank 0 of 4. "
        "▲ marks 1 unusual step, which is not part of the typical step."
    )


def test_a_very_long_step_does_not_flatten_the_others() -> None:
    rich = sample.rich()
    series, typical_us = rich.step.series, rich.step.typical_us
    assert series is not None
    assert typical_us is not None
    longest = [replace(part, us=[part.us[0] * 100, *part.us[1:]]) for part in series.parts]
    slow = replace(rich, step=replace(rich.step, series=replace(series, parts=longest)))
    strip = draw_steps(slow)
    assert strip is not None
    tall = [sum(heights) for heights in zip(*(part.heights for part in strip.parts), strict=True)]
    assert max(tall) < 100
    assert tall[0] / tall[1] == pytest.approx(3 * typical_us / sum(part.us[1] for part in series.parts), rel=1e-3)
    first_us = sum(part.us[0] for part in strip.parts)
    for part in strip.parts:
        assert part.heights[0] / tall[0] == pytest.approx(part.us[0] / first_us, abs=1e-3)
    assert [bool(column.cut) for column in strip.columns] == [True] + [False] * 11
    assert caption(slow).endswith("Columns are cut at 3 times the typical step.")


def test_many_steps_are_drawn_as_paths() -> None:
    strip = draw_steps(sample.stress())
    assert strip is not None
    assert len(strip.columns) > MOST_PATTERNED
    assert not strip.patterned
    assert len(strip.labeled) <= 12
    assert strip.parts[0].path.count("M") == 400
    rich = sample.rich()
    assert rich.step.series is not None
    part_of_run = replace(rich, step=replace(rich.step, count=900, series=replace(rich.step.series, first=300)))
    assert caption(part_of_run).startswith("Steps 301 to 312 of 900")
    every = replace(sample.step_series([4e5] * 1_000), shown=700)
    assert caption(replace(rich, step=replace(rich.step, count=1_000, series=every))).startswith("Steps 501 to 900 of")


def test_a_step_says_how_long_it_takes_on_other_ranks() -> None:
    strip = draw_steps(sample.rich())
    assert strip is not None
    text = strip.columns[0].text.replace("\u00a0", " ")
    assert text.endswith(" Over the ranks: 411.0 ms (rank 0) to 431.0 ms (rank 2).")


def test_the_memory_of_each_step_stands_beside_its_time() -> None:
    rich = sample.rich()
    assert rich.step.series is not None
    peaks: list[int | None] = [10 << 30, 12 << 30, None, 12 << 30, *[(12 << 30) + 1] * 8]
    series = replace(rich.step.series, ranks=[], peak_memory_bytes=peaks)
    strip = draw_steps(replace(rich, step=replace(rich.step, series=series)))
    assert strip is not None
    texts = [column.text.replace("\u00a0", " ") for column in strip.columns]
    assert texts[0].endswith(". Peak memory 10.0 GiB.")
    assert texts[1].endswith(" Peak memory 12.0 GiB, 2.0 GiB more than in the step before.")
    assert "memory" not in texts[2]
    assert texts[3].endswith(" Peak memory 12.0 GiB.")
    assert texts[4].endswith(" Peak memory 12.0 GiB."), "a byte more is not worth a word"


def test_one_step_has_no_strip() -> None:
    rich = sample.rich()
    assert draw_steps(replace(rich, step=replace(rich.step, series=None))) is None
    assert 'id="steps"' not in render_html(sample.cpu_only(), static=True)


SCRUB = "#steps-scrub"


def described(page) -> str:
    text = page.inner_text("#steps-readout")
    assert page.get_attribute(SCRUB, "aria-valuetext").replace("\u00a0", " ") == text.replace("\u00a0", " ")
    return text


def test_pointer_and_arrow_keys_choose_a_step(open_report) -> None:
    page = open_report(sample.rich(), static=True)
    page.wait_for_selector(f"{SCRUB}[aria-valuemax]")
    assert described(page).startswith("ProfilerStep#9,")
    page.focus(SCRUB)
    page.keyboard.press("ArrowLeft")
    assert described(page).startswith("ProfilerStep#8,")
    page.keyboard.press("Home")
    assert described(page).startswith("ProfilerStep#2,")
    page.keyboard.press("ArrowLeft")
    assert described(page).startswith("ProfilerStep#2,")
    page.keyboard.press("End")
    assert described(page).startswith("ProfilerStep#13,")
    box = page.locator(SCRUB).bounding_box()
    page.mouse.click(box["x"] + box["width"] * 4.5 / 12, box["y"] + 40)
    assert described(page).startswith("ProfilerStep#6,")
    assert page.get_attribute(SCRUB, "aria-valuenow") == "5"


def test_ranks_and_memory_have_readouts(open_report) -> None:
    page = open_report(sample.many_ranks(), static=True)
    page.wait_for_selector("#ranks-scrub[aria-valuemax='64']")
    page.focus("#ranks-scrub")
    for _ in range(8):
        page.keyboard.press("ArrowRight")
    assert page.inner_text("#ranks-readout").startswith("Rank 7, 412.0")
    assert "Waiting for data 187.0" in page.inner_text("#ranks-readout")
    page.locator("#memory-scrub").scroll_into_view_if_needed()
    box = page.locator("#memory-scrub").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.66, box["y"] + 60)
    assert " allocated at 271." in page.inner_text("#memory-readout").replace("\u00a0", " ")


def test_the_strip_needs_no_script(open_report) -> None:
    page = open_report(sample.rich(), static=True, java_script_enabled=False)
    assert page.locator(".stacks > span").count() == 12
    assert not page.locator(SCRUB).is_visible()
    assert "Choose a step" not in page.inner_text("main")


@pytest.mark.parametrize(
    ("scale", "labels"),
    [(1, ["0", "200", "400", "600 ms"]), (1e-3, ["0", "0.2", "0.4", "0.6 ms"]), (100, ["0", "20", "40", "60 s"])],
)
def test_the_axis_has_round_times_and_a_unit(scale: float, labels: list[str]) -> None:
    """The longest step takes 610 ms."""
    rich = sample.rich()
    assert rich.step.series is not None
    parts = [replace(part, us=[us * scale for us in part.us]) for part in rich.step.series.parts]
    series = replace(rich.step.series, parts=parts)
    assert rich.step.typical_us is not None
    step = replace(rich.step, typical_us=rich.step.typical_us * scale, series=series)
    strip = draw_steps(replace(rich, step=step))
    assert strip is not None
    assert [level.label.replace("\u00a0", " ") for level in strip.levels] == labels
    assert strip.levels[0].at == 100
    assert strip.typical_top is not None
    apart = (strip.levels[0].at - strip.levels[1].at) * 412 / 200  # from 0 to the typical step
    assert strip.levels[0].at - apart == pytest.approx(strip.typical_top, abs=0.1)


@pytest.mark.parametrize("width", [1280, 390])
def test_the_mark_of_the_chosen_step_leaves_its_label_free(open_report, width: int) -> None:
    page = open_report(sample.rich(), static=True, width=width, fragment="#steps")
    page.wait_for_selector(f"{SCRUB}[aria-valuemax]")
    mark = page.locator(f"{SCRUB} i").bounding_box()
    label = page.locator(".step-plot .axis span").first.bounding_box()
    assert mark["y"] + mark["height"] <= label["y"]
    card = page.locator(".chart:has(.step-plot)").bounding_box()
    for level in page.locator(".levels b").all():
        place = level.bounding_box()
        assert card["x"] < place["x"]
        assert place["x"] + place["width"] < page.locator(".stacks").bounding_box()["x"]


def test_another_rank_can_be_chosen(open_report, tmp_path: Path) -> None:
    """Its steps, timeline and flame graph take the place of those of the lowest rank, and go again."""
    for trace in generate_ranks("straggler", steps=4):
        trace.write(tmp_path / "job" / f"rank-{trace.rank}.pt.trace.json")
    page = open_report(analyze(str(tmp_path / "job")))
    choices = page.locator("[data-rank-choice]")
    assert choices.first.locator("option").all_inner_texts() == ["0", "1: the others wait for it"]
    page.locator("#timeline-box").scroll_into_view_if_needed()
    page.wait_for_selector("#span-canvas[data-ready]")
    of_rank_0 = page.inner_text("#span-answer")
    choices.first.select_option(index=1)
    page.wait_for_selector("#span-about:has-text('rank 1 of 2')")
    assert page.inner_text("#span-answer") != of_rank_0
    page.wait_for_selector("#flame-what:has-text('main thread of rank 1 of 2 did in')")
    assert choices.last.input_value() == "1"
    assert not page.locator("#steps-scrub").is_visible()
    page.focus("#steps-1-scrub")
    page.keyboard.press("Home")
    first = page.inner_text("#steps-1-readout").partition(",")[0]
    page.wait_for_selector(f"#span-step:has-text('{first},')")
    page.wait_for_selector(f"#flame-what:has-text('did in {first},')")
    choices.first.select_option(index=0)
    page.wait_for_selector("#span-about:has-text('rank 0 of 2')")
    assert page.locator("#steps-scrub").is_visible()


def test_a_step_without_spans_says_how_to_get_them(open_report) -> None:
    page = open_report(sample.rich())
    page.locator("#timeline-box").scroll_into_view_if_needed()
    page.wait_for_selector("#span-canvas[data-ready]")
    page.focus("#steps-scrub")
    page.keyboard.press("Home")
    page.wait_for_selector("#steps-missing:has-text('does not hold the spans of this step')")
    assert "traceopt cut logs/rank0.pt.trace.json.gz --step 2 -o step.json.gz" in page.inner_text("#steps-missing")
    page.keyboard.press("End")
    for _ in range(4):
        page.keyboard.press("ArrowLeft")
    page.wait_for_selector("#steps-missing", state="hidden")
