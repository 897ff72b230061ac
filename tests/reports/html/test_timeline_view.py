"""The timeline that zooms, in a browser: every span is reached by keyboard and pointer, and says what it is."""

from __future__ import annotations

import numpy as np
import pytest
import sample
from msgspec.structs import replace
from rich_sample import span_table
from support.page_parts import unpack_timeline

from traceopt.reports.html.page import render_html
from traceopt.reports.html.span_view import beside_the_document, left_out, span_view
from traceopt.reports.words.display import for_display
from traceopt.reports.words.fixes.card_lookup import card_of_stall
from traceopt.reports.words.fixes.fix_cards import cards
from traceopt.result.document import Result
from traceopt.result.encoding.packing import pack_columns
from traceopt.result.finding import Location
from traceopt.result.sections.timeline_rows import COLUMNS, STREAM_COLUMNS, SpanLane, SpanTable, Stall, StepWindow

CANVAS = "#span-canvas"
GUTTER = 158  # px: the names of the lanes
KERNEL_MS = "100.0"


@pytest.fixture
def timeline(open_report):
    """The rich report with its timeline unpacked and focused, Python frames shown."""
    page = unpack_timeline(open_report(sample.rich()))
    page.check("#span-python")
    page.focus(CANVAS)
    return page


def press(page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def told(page) -> str:
    return page.inner_text("#span-details").replace("\u00a0", " ")


def title(page) -> str:
    return page.inner_text("#span-details h3").replace("\u00a0", " ")


def seen(page) -> list[float]:
    """The times at the left and right edge, ms."""
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return [float(page.get_attribute(CANVAS, f"data-{edge}")) for edge in ("from", "to")]


def test_the_arrow_keys_reach_every_span(timeline) -> None:
    reached = set()
    press(timeline, "Enter", *["ArrowUp"] * 9)
    for _ in range(9):
        press(timeline, *["ArrowLeft"] * 5)
        for _ in range(5):
            reached.add(told(timeline).split("\nWhat")[0].split("\nLine")[0])  # name, duration and start
            press(timeline, "ArrowRight")
        press(timeline, "ArrowDown")
    assert len(reached) == 9 + 2  # spans and stalls


def test_the_key_has_the_colors_of_idle_gaps() -> None:
    rich = sample.rich()
    assert rich.timeline is not None
    assert rich.timeline.table is not None
    table = replace(rich.timeline.table, categories=[*rich.timeline.table.categories, "host_sync", "queued"])
    view = span_view(replace(rich, timeline=replace(rich.timeline, table=table)), cards(rich), "GPU idle")
    assert view is not None
    assert view["key"][-2:] == [
        ("sync", "GPU idle: host sync (waiting for the GPU)"),
        ("queue", "GPU idle: idle with work queued"),
    ]


def test_a_gap_names_its_cause_and_its_fix(timeline) -> None:
    timeline.fill("#span-search", "Waiting for the host")
    press(timeline, "Enter", "Enter")
    assert timeline.inner_text("#span-found") == "1 of 2", "the stall of this cause has the same name"
    assert title(timeline) == "GPU idle: Waiting for the host"
    assert "14.0 ms, starts at 244.0 ms of the step" in told(timeline)
    assert timeline.locator("#span-details a", has_text="the CPU").count() == 1


def test_a_kernel_says_everything_about_itself(timeline) -> None:
    timeline.fill("#span-search", "kernel2")
    timeline.keyboard.press("Enter")
    assert timeline.inner_text("#span-found") == "2 of 2"  # the first one in the step, or after it
    timeline.keyboard.press("Enter")
    assert timeline.inner_text("#span-found") == "1 of 2"
    assert timeline.inner_text("#steps-readout").startswith("ProfilerStep#8")  # the step of the span
    text = told(timeline)
    for words in [
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256>(Params)",
        "30.0 ms, starts at 214.0 ms of the step",
        "GPU compute, stream 7",
        "grid 12×8×1, block 256×1×1",
        "aten::addmm",
        "[[128, 384], [384, 1001]]",
        "9.0 ms after the call on CPU main thread (thread 41):",
        "cudaLaunchKernel",
        "model/vit.py:57",
        "Fix for this line\n2. Let FP32 matmuls use Tensor Cores (TF32)",
        "train.py(88): train",
    ]:
        assert words in text
    timeline.get_by_role("button", name="cudaLaunchKernel").first.click()
    assert title(timeline) == "cudaLaunchKernel"
    timeline.get_by_role("button", name="Kernel2<").click()
    assert title(timeline).startswith("void cutlass")


def test_a_launch_that_is_not_in_the_file_is_said(timeline) -> None:
    timeline.fill("#span-search", "fmha")
    timeline.keyboard.press("Enter")
    assert "not known: the launch is not in the file" in told(timeline)


def test_a_stall_links_to_its_fix(timeline) -> None:
    timeline.fill("#span-search", "Waiting for the host")
    timeline.keyboard.press("Enter")
    assert title(timeline) == "GPU idle: Waiting for the host"
    timeline.click("#span-details a")
    timeline.wait_for_selector("#HS002[open]")


def test_keys_zoom_and_move(timeline) -> None:
    whole = seen(timeline)
    assert whole[1] - whole[0] == pytest.approx(412)
    press(timeline, "w", "w")
    near = seen(timeline)
    assert near[1] - near[0] == pytest.approx(412 * 0.49)
    press(timeline, "d")
    assert seen(timeline)[0] == pytest.approx(near[0] + 0.2 * 412 * 0.49)
    press(timeline, "a", "s")
    assert seen(timeline)[1] - seen(timeline)[0] == pytest.approx(412 * 0.7)
    press(timeline, "Home")
    assert seen(timeline) == pytest.approx(whole)
    timeline.fill("#span-search", "aten::addmm")
    timeline.keyboard.press("Enter")
    timeline.focus(CANVAS)
    press(timeline, "f")
    assert seen(timeline)[1] - seen(timeline)[0] == pytest.approx(120)
    press(timeline, "Escape")
    assert not timeline.is_visible("#span-details")


def test_an_arrow_key_stops_at_the_edge_of_the_step(timeline) -> None:
    timeline.fill("#span-search", "kernel2")
    timeline.keyboard.press("Enter")
    timeline.keyboard.press("Enter")
    timeline.focus(CANVAS)
    press(timeline, *["ArrowLeft"] * 5)
    assert timeline.inner_text("#span-note") == "This is the first span of the row."
    for _ in range(5):
        if not timeline.inner_text("#span-note").startswith("This is the last"):
            press(timeline, "ArrowRight")
    assert timeline.inner_text("#span-step").startswith("ProfilerStep#8")
    assert timeline.inner_text("#span-note") == (
        "This is the last span of the row in ProfilerStep#8. Press the arrow key again to go on to ProfilerStep#9."
    )
    press(timeline, "ArrowRight")
    assert timeline.inner_text("#span-step").startswith("ProfilerStep#9")
    assert timeline.inner_text("#span-note") == ""
    press(timeline, *["ArrowRight"] * 9)
    assert timeline.inner_text("#span-note") == "This is the last span of the row."
    press(timeline, "PageDown")
    assert timeline.inner_text("#span-note") == "The report holds the spans of no step after ProfilerStep#9."


def test_a_long_step_is_in_seconds(open_report) -> None:
    rich = sample.rich()
    assert rich.timeline is not None
    assert rich.timeline.table is not None
    long = replace(rich.timeline.table, steps=[StepWindow(7, "ProfilerStep#9", 0, 43_425_400)])
    page = unpack_timeline(open_report(replace(rich, timeline=replace(rich.timeline, table=long))))
    assert page.inner_text("#span-step").replace("\u00a0", " ") == "ProfilerStep#9, 43.4 s"


def test_a_range_is_summed_up(timeline) -> None:
    timeline.fill("#span-search", "kernel2")
    timeline.keyboard.press("Enter")
    timeline.focus(CANVAS)
    press(timeline, "m")
    assert title(timeline) == f"Range of {KERNEL_MS} ms"
    text = told(timeline)
    assert f"{KERNEL_MS} ms (100% of the range)" in text
    assert "Kernel2<cutlass_80_simt_sgemm_128x256>" in text
    low, high = seen(timeline)
    box = timeline.locator(CANVAS).bounding_box()
    scale = (box["width"] - GUTTER) / (high - low)
    timeline.mouse.move(box["x"] + GUTTER + 20 * scale, box["y"] + 12)
    timeline.mouse.down()
    timeline.mouse.move(box["x"] + GUTTER + 60 * scale, box["y"] + 12, steps=3)
    timeline.mouse.up()
    assert float(title(timeline).split()[2]) == pytest.approx(40, abs=1.5)
    assert seen(timeline) == [low, high]  # a drag on the axis does not move the view
    press(timeline, "Escape")
    assert timeline.is_hidden("#span-details")
    timeline.click("#span-sum")
    assert float(title(timeline).split()[2]) == pytest.approx(high - low, abs=0.1)


def test_long_and_short_gaps_of_one_cause_are_one_sum(timeline) -> None:
    timeline.fill("#span-search", "Waiting for the host")
    press(timeline, "Enter", "Enter")  # the short gap, in step 8
    timeline.focus(CANVAS)
    press(timeline, "Escape", "-", "-", "-", "-", "-", "-", "m")
    table = timeline.locator("#span-details .sums table", has_text="GPU idle, by main cause")
    rows = [row.split("\t") for row in table.locator("tbody tr").all_inner_texts()]
    sums = {name: (spans, ms.replace("\u00a0", " ")) for name, spans, ms, _ in rows}
    assert sums["Waiting for the host"] == ("2", "40.0 ms"), "14 ms and a stall of 26 ms"


def test_the_sums_of_threads_count_no_time_twice(timeline) -> None:
    timeline.click("#span-home")
    timeline.click("#span-sum")
    whole = seen(timeline)[1] - seen(timeline)[0]
    shares = timeline.locator("#span-details .sums table").last.locator("tbody tr td:nth-child(3)").all_inner_texts()
    assert shares
    assert sum(float(share.split()[0].replace(",", "")) for share in shares) <= whole


def one_lane(lane: SpanLane, names: list[str], category: str, spans: dict[str, np.ndarray]) -> Result:
    """The rich result with a timeline of one step and one lane. `spans`: columns by name; the others are 0."""
    none = np.zeros(lane.count, np.int64)
    table = SpanTable(
        steps=[StepWindow(0, "ProfilerStep#1", 0.0, 412_000.0)],
        lanes=[lane],
        names=names,
        labels=[""] * len(names),
        categories=[category],
        places=[],
        details=[],
        stalls=[],
        columns=pack_columns([*(spans.get(name, none) for name in COLUMNS), *([none] * len(STREAM_COLUMNS))]),
    )
    rich = sample.rich()
    return replace(rich, timeline=replace(rich.timeline, table=table))


def test_a_bar_next_to_a_labeled_one_keeps_its_color(open_report) -> None:
    """Labels have the color of the page: a bar drawn in it would be invisible."""
    spans = {"start": np.full(3, 100_000_000), "duration": np.full(3, 90_000_000)}
    lane = SpanLane("stream", "GPU compute", "stream 7", 3, 0)
    timeline = unpack_timeline(open_report(one_lane(lane, ["kernel"], "compute", spans)))
    seen(timeline)
    longest = timeline.evaluate(
        """() => {
            const canvas = document.getElementById("span-canvas");
            const pixels = new Uint32Array(
                canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer
            );
            let longest = 0, run = 0;
            for (const pixel of pixels) {
                run = pixel === 0xffffffff ? run + 1 : 0;  // white and opaque; the page shows through elsewhere
                longest = Math.max(longest, run);
            }
            return longest;
        }"""
    )
    assert longest < 12  # pixels of a letter


def test_an_activity_within_a_longer_one_does_not_hide_it(open_report) -> None:
    """The launches of a forward pass are one activity, with small operators in between."""
    spans = {"start": np.array([50_000_000, 60_000_000]), "duration": np.array([300_000_000, 5_000_000])}
    spans["name"] = np.array([0, 1])
    lane = SpanLane("activity", "CPU main thread", "thread 1", 2, 0)
    page = unpack_timeline(open_report(one_lane(lane, ["launching", "small operators"], "cpu", spans)))
    page.focus(CANVAS)
    press(page, "w", "w")
    assert seen(page)[0] > 65
    box, titles = page.locator(CANVAS).bounding_box(), set()
    for down in range(int(box["height"]) // 8):
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 8 * down)
        if page.is_visible("#span-details"):
            titles.add(title(page))
    assert "launching" in titles


def test_a_click_on_the_name_of_a_step_chooses_it(timeline) -> None:
    timeline.click("#span-out")  # two steps in view
    box = timeline.locator(CANVAS).bounding_box()
    timeline.mouse.click(box["x"] + GUTTER + 3, box["y"] + 35)
    assert timeline.inner_text("#span-step").startswith("ProfilerStep#8")


def test_the_keys_are_listed(timeline) -> None:
    press(timeline, "?")
    assert timeline.is_visible("#span-keys")
    assert "Previous and next span of the row" in timeline.inner_text("#span-keys")
    press(timeline, "Escape")
    assert timeline.is_hidden("#span-keys")


def test_an_operator_says_what_it_launched(timeline) -> None:
    timeline.fill("#span-search", "aten::addmm")
    timeline.keyboard.press("Enter")
    text = told(timeline)
    assert "1 kernel or copy, 30.0 ms:" in text
    assert "outside the spans below it" in text


def test_the_keys_work_from_the_details_as_well(timeline) -> None:
    press(timeline, "Enter", "Enter")  # chooses a span, then goes to its details
    assert timeline.evaluate("document.activeElement.id") == "span-details"
    whole, at = seen(timeline), timeline.evaluate("scrollY")
    press(timeline, "w", "w")
    assert seen(timeline) != whole
    press(timeline, "Home")
    assert seen(timeline) == whole
    assert timeline.evaluate("scrollY") == at
    press(timeline, "Escape")
    assert timeline.evaluate("document.activeElement.id") == CANVAS.removeprefix("#")


def test_a_search_without_a_hit_shows_no_span(timeline) -> None:
    press(timeline, "Enter")
    assert timeline.is_visible("#span-details")
    timeline.fill("#span-search", "no span has this name")
    assert timeline.is_hidden("#span-details")


def test_the_strip_chooses_the_step(timeline) -> None:
    assert timeline.inner_text("#span-step").startswith("ProfilerStep#9, 412.0")
    timeline.focus("#steps-scrub")
    press(timeline, "ArrowLeft")
    assert timeline.inner_text("#span-step").startswith("ProfilerStep#8, 610.0")
    assert seen(timeline) == pytest.approx([0, 610])
    press(timeline, "ArrowLeft")
    assert "does not hold the spans of that step" in timeline.inner_text("#span-step")
    timeline.focus(CANVAS)
    press(timeline, "PageDown")
    assert timeline.inner_text("#steps-readout").startswith("ProfilerStep#9")


def test_a_click_chooses_the_span_under_it(timeline) -> None:
    press(timeline, "PageUp")
    low, high = seen(timeline)
    box = timeline.locator(CANVAS).bounding_box()
    across = box["x"] + GUTTER + (288 - low) / (high - low) * (box["width"] - GUTTER)
    titles = set()
    for down in range(int(box["height"]) // 8):
        timeline.mouse.click(across, box["y"] + 8 * down)
        if timeline.is_visible("#span-details"):
            titles.add(title(timeline))
    assert {"fmha_cutlassF_f32", "train.py(88): train"} <= titles


def test_the_static_chart_gives_way_and_comes_back_in_print(timeline) -> None:
    assert not timeline.is_visible("#timeline-box > .static")
    timeline.emulate_media(media="print")
    assert timeline.is_visible("#timeline-box > .static")
    assert not timeline.is_visible(CANVAS)


def test_on_a_phone_the_lanes_names_are_above_them(open_report) -> None:
    page = unpack_timeline(open_report(sample.rich(), width=390, fragment="#timeline"))
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    page.focus(CANVAS)
    press(page, "Enter")
    assert title(page) == "GPU idle: Waiting for data"


def test_the_longest_gap_is_the_answer_above_the_timeline(timeline) -> None:
    assert timeline.inner_text("#span-answer").replace("\u00a0", " ") == (
        "Longest gap in GPU work: 187.0 ms in ProfilerStep#9, waiting for data."
    )


def test_what_is_left_out_is_said() -> None:
    rich = sample.rich()
    assert left_out(rich) == (
        "It holds the spans of ProfilerStep#8 to ProfilerStep#9; all 12 steps would make it too large."
    )
    assert "holds the 110,000 longest of 200,000 spans, to keep it small" in left_out(sample.stress())
    assert span_view(replace(rich, timeline=replace(rich.timeline, table=None)), [], None) is None
    assert "span-canvas" not in render_html(replace(rich, timeline=replace(rich.timeline, table=None)))


def test_a_kernel_is_concerned_by_the_fix_whose_evidence_it_is() -> None:
    document = for_display(sample.rich())
    view = span_view(document, cards(document), "GPU idle")
    assert view is not None
    kernel = view["labels"].index("Kernel2<cutlass_80_simt_sgemm_128x256>")
    assert view["nameFixes"][kernel] == []  # its evidence is at another line
    free = [replace(row, what=view["labels"][kernel], location=None) for row in document.findings[1].evidence]
    findings = [document.findings[0], replace(document.findings[1], evidence=free), *document.findings[2:]]
    changed = replace(document, findings=findings)
    view = span_view(changed, cards(changed), "GPU idle")
    assert view is not None
    assert [view["fixes"][fix]["anchor"] for fix in view["nameFixes"][kernel]] == ["TC002"]


def test_a_page_has_only_those_texts_of_spans_that_are_not_in_its_document() -> None:
    recorded = sample.rich()
    table = recorded.timeline.table if recorded.timeline is not None else None
    assert table is not None
    long = "kernel<" + 400 * "x" + ">"
    table = replace(table, names=[long, *table.names[1:]])
    document = for_display(replace(recorded, timeline=replace(recorded.timeline, table=table)))
    view = span_view(document, [], "GPU idle")
    assert view is not None
    shown = view["names"][0]
    assert shown != long
    beside = beside_the_document(view, table)
    assert beside["names"] == {"0": shown}
    assert set(beside["details"]) == set()
    assert beside["lanes"] == view["lanes"]


def test_a_sync_stall_only_names_the_fix_of_its_line() -> None:
    numbered = cards(for_display(sample.rich()))
    codes = [card.finding.code for card in numbered]

    def fix_at(cause: str, place: Location | None) -> str | None:
        found = card_of_stall(numbered, Stall(0, 1, cause, "", place))
        return None if found is None else codes[found]

    assert fix_at("host_sync", Location("train.py", 98)) == "HS002"
    assert fix_at("host_sync", Location("train.py", 5)) is None
    assert fix_at("data_loading", Location("train.py", 5)) == "DL001"
    assert fix_at("queued", None) is None


def test_a_stall_has_the_command_that_opens_its_step(timeline) -> None:
    press(timeline, "Enter", *["ArrowUp"] * 9)
    assert timeline.locator("#span-details h3").inner_text().startswith("GPU idle")
    assert "traceopt cut" in told(timeline)
    assert "--step" in timeline.locator("#span-details code").last.inner_text()


def deep() -> Result:
    """One step of 412 ms: a thread with 40 levels of Python frames, an operator and a launch at the bottom; a kernel of
    20 µs, launched 3 ms earlier.
    """
    names = ["softmax.py(1): softmax", "aten::softmax", "cudaLaunchKernel", "softmax_warp_forward", "optimizer"]
    frames = [(1 + level * 0.1, 300 - level, 0, 0, 0, 0) for level in range(40)]
    thread = [*frames, (100, 5, 1, 1, 0, 1), (101, 0.01, 2, 2, 0, 0), (390, 4, 4, 1, 0, 0)]
    table = span_table(
        [
            (SpanLane("thread", "CPU main thread", "thread 41", 0, 0), thread),
            (SpanLane("stream", "GPU compute", "stream 7", 0, 0), [(104, 0.0278, 3, 3, 0, 0, 1, 1, 1, 3)]),
        ],
        steps=[StepWindow(0, "ProfilerStep#1", 0.0, 412_000.0)],
        names=names,
        labels=[""] * len(names),
        categories=["python", "cpu", "runtime", "compute"],
        places=[],
        details=["[128, 3, 224, 224] float"],
        stalls=[],
    )
    rich = sample.rich()
    return replace(rich, timeline=replace(rich.timeline, table=table))


@pytest.fixture
def deep_timeline(open_report):
    return unpack_timeline(open_report(deep()))


def test_a_search_finds_the_work_of_the_gpu_first_and_opens_no_python_frames(deep_timeline) -> None:
    page = deep_timeline
    page.fill("#span-search", "softmax")
    assert page.inner_text("#span-found") == "2 spans, and 40 Python frames"
    found = []
    for _ in range(2):
        page.keyboard.press("Enter")
        found.append(title(page))
    assert found == ["softmax_warp_forward", "aten::softmax"]
    assert not page.is_checked("#span-python")
    page.select_option("#span-scope", "gpu")
    assert page.inner_text("#span-found") == "1 span"
    page.select_option("#span-scope", "python")
    page.focus("#span-search")
    page.keyboard.press("Enter")
    assert page.is_checked("#span-python")
    assert title(page) == "softmax.py(1): softmax"


def test_a_search_goes_to_python_frames_if_nothing_else_has_the_name(deep_timeline) -> None:
    page = deep_timeline
    page.fill("#span-search", "softmax.py")
    assert page.inner_text("#span-found") == "40 spans"
    page.keyboard.press("Enter")
    assert page.is_checked("#span-python")


def test_a_moment_is_as_exact_as_the_range_around_it(deep_timeline) -> None:
    page = deep_timeline
    page.fill("#span-search", "softmax_warp")
    page.keyboard.press("Enter")
    assert "27.8 µs, starts at 104.0000 ms of the step" in told(page)
    assert "Shapes\n[128, 3, 224, 224] float" in told(page)
    page.focus(CANVAS)
    press(page, "m")
    assert title(page) == "Range of 27.8 µs"
    assert "104.0000 ms to 104.0278 ms of the step" in told(page)


def test_the_other_end_of_an_arrow_is_named_at_the_edge_and_a_key_goes_there(deep_timeline) -> None:
    page = deep_timeline
    page.check("#span-python")
    page.fill("#span-search", "softmax_warp")
    page.keyboard.press("Enter")
    page.focus(CANVAS)
    page.evaluate("document.querySelector('.spans').scrollTop = 0")
    press(page, "f")
    seen(page)
    hint = page.get_attribute(CANVAS, "data-hint").replace("\u00a0", " ")
    assert hint == "◂ launched 3.0 ms earlier: press L"
    press(page, "l")
    assert title(page) == "cudaLaunchKernel"
    press(page, "l")
    assert title(page) == "softmax_warp_forward"


def test_the_rows_of_the_gpu_stay_while_the_threads_scroll(deep_timeline) -> None:
    page = deep_timeline
    page.check("#span-python")
    page.evaluate("document.querySelector('.spans').scrollTop = 100")
    box = page.locator(CANVAS).bounding_box()
    low, high = seen(page)
    page.mouse.click(box["x"] + GUTTER + (box["width"] - GUTTER) * (104 - low) / (high - low), box["y"] + 37)
    assert title(page) == "softmax_warp_forward"
    assert page.evaluate("document.querySelector('.spans').scrollTop") == 100


def test_details_can_be_closed_without_a_key_and_stay_on_the_screen_of_a_phone(open_report) -> None:
    page = unpack_timeline(open_report(sample.rich(), width=390, fragment="#timeline"))
    page.evaluate("document.getElementById('timeline').scrollIntoView()")
    page.focus(CANVAS)
    press(page, "Enter")
    shown = page.locator("#span-details").bounding_box()
    assert 0 < shown["y"] < shown["y"] + shown["height"] <= 900
    page.get_by_role("button", name="Close the details").click()
    assert page.is_hidden("#span-details")
