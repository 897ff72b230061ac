"""The flame graph in a browser: zoom, search, only the user's code, GPU time; hostile names stay text."""

from __future__ import annotations

import pytest
import sample
from msgspec.structs import replace

from fixtures.hostile import HOSTILE
from traceopt.reports.html.flame_view import caption
from traceopt.reports.html.page import render_html
from traceopt.result.document import Result
from traceopt.result.sections.timeline_rows import FlameGraph, FlameNode

USER, LIBRARY = "/home/me/train.py(12): forward", "torch/nn/modules/module.py(1520): _call_impl"
FRAMES = ["/home/me/train.py(1): main", LIBRARY, USER, "aten::mm", "gemm_kernel", *HOSTILE[:12]]
COLORS = "[...document.querySelectorAll('.flame-box')].map(box => box.dataset.color)"


def with_flame() -> Result:
    nodes = [
        FlameNode(-1, 0, "user", 900, 100, 700),
        FlameNode(0, 1, "library", 600, 50, 700),
        FlameNode(1, 2, "user", 550, 50, 700),
        FlameNode(2, 3, "operator", 500, 500, 700),
        FlameNode(3, 4, "kernel", 0, 0, 700),
    ]
    nodes += [FlameNode(0, 5 + index, "user", 15, 15, 0) for index in range(12)]
    flame = FlameGraph("ProfilerStep#3", 1_000, 800, 100, 0, FRAMES, nodes)
    return replace(sample.rich(), flame=flame)


@pytest.fixture
def page(open_report):
    page = open_report(with_flame())
    page.wait_for_selector("#flame-graph[data-ready]")
    return page


def labels(page) -> list[str]:
    names = page.locator(".flame-box").evaluate_all("boxes => boxes.map(box => box.getAttribute('aria-label'))")
    return [name.rsplit(", GPU", 1)[0].rsplit(", ", 1)[0] for name in names]


def test_an_inference_has_no_backward_work() -> None:
    result = with_flame()
    assert result.flame is not None
    assert "ackward" not in " ".join(caption(result))
    assert "Backward GPU work" in caption(replace(result, flame=replace(result.flame, backward_gpu_us=300)))[1]


def test_absent_without_frames() -> None:
    assert 'id="flame-graph"' not in render_html(sample.rich())


def test_colors_are_those_of_the_timeline(open_report) -> None:
    """Calls inside data loading have its color, and a call that mostly waits that of a wait; a kernel keeps its own."""
    result = with_flame()
    assert result.flame is not None
    main, library, user, mm, kernel, *_ = result.flame.nodes
    nodes = [main, replace(library, category="loader"), user, mm, kernel]
    nodes += [FlameNode(0, 5, "operator", 200, 10, 0), FlameNode(5, 6, "runtime", 190, 190, 0, "wait")]
    page = open_report(replace(result, flame=replace(result.flame, nodes=nodes)))
    page.wait_for_selector("#flame-graph[data-ready]")
    assert page.evaluate(COLORS) == ["python", "loader", "loader", "loader", "wait", "wait"]
    page.select_option("#flame-value", "gpuTotal")
    assert page.evaluate(COLORS) == ["python", "loader", "loader", "loader", "compute"]
    assert page.inner_text("#flame-key").split("\n") == ["Your code", "CPU waiting", "GPU compute", "Waiting for data"]


def test_other_steps_and_threads_come_from_the_spans(open_report, example) -> None:
    """The step that the strip chooses, and each thread of the timeline. A box is a share of that step."""
    result = example("five_faults").result
    assert result.flame is not None
    assert result.timeline is not None
    assert result.timeline.table is not None
    assert result.flame.duration_us == result.timeline.duration_us
    page = open_report(result)
    page.wait_for_selector("#flame-graph[data-ready]")
    assert {"read_loss (train.py:33)", "aten::item"} <= set(labels(page))
    page.focus("#steps-scrub")
    page.keyboard.press("End")
    last = result.timeline.table.steps[-1]
    assert last.name != result.flame.step
    page.wait_for_selector(f"#flame-what:has-text('did in {last.name},')")
    assert {"read_loss (train.py:33)", "aten::item"} <= set(labels(page))
    page.get_by_role("treeitem", name="main (train.py:118)").click()
    assert " 100% of the step" in page.inner_text("#flame-details").replace("\u00a0", " ")
    page.select_option("#flame-value", "gpuTotal")
    assert any(label.startswith("cutlass") for label in labels(page))
    page.select_option("#flame-thread", label="All threads")
    page.wait_for_selector("#flame-what:has-text('all threads')")
    assert {"CPU main thread", "CPU autograd thread"} <= set(labels(page))


def test_widths_are_shares_of_the_step(page) -> None:
    width = page.locator("#flame-graph").bounding_box()["width"]
    boxes = {one: page.locator(".flame-box").nth(index).bounding_box() for index, one in enumerate(labels(page))}
    assert boxes["main (train.py:1)"]["width"] == pytest.approx(0.9 * width, abs=2)
    assert boxes["aten::mm"]["width"] == pytest.approx(0.5 * width, abs=2)


def test_only_my_code_leaves_library_frames_out(page) -> None:
    assert "_call_impl (module.py:1520)" in labels(page)
    page.check("#flame-user")
    assert "_call_impl (module.py:1520)" not in labels(page)
    assert labels(page)[:2] == ["main (train.py:1)", "forward (train.py:12)"]
    page.get_by_role("treeitem", name="forward (train.py:12)").click()
    assert "aten::mm – 500" in page.inner_text("#flame-details")


def test_a_click_zooms_and_tells_what_is_below(page) -> None:
    page.get_by_role("treeitem", name="forward (train.py:12)").click()
    told = page.inner_text("#flame-details").replace("\u00a0", " ")
    assert told.startswith(USER)
    assert "550 µs, 55% of the step; 50 µs outside its callees" in told
    assert "aten::mm – 500 µs" in told
    assert "gemm_kernel – 700 µs" in told
    assert labels(page) == ["main (train.py:1)", "_call_impl (module.py:1520)", "forward (train.py:12)", "aten::mm"]
    page.click("#flame-home")
    assert not page.is_visible("#flame-details")


def test_the_keyboard_reaches_frames(page) -> None:
    page.locator(".flame-box").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.inner_text("#flame-details h3") == USER
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert page.inner_text("#flame-details h3") == LIBRARY
    page.keyboard.press("Escape")
    assert not page.is_visible("#flame-details")


def test_gpu_time_by_line(page) -> None:
    page.select_option("#flame-value", "gpuTotal")
    assert "gemm_kernel" in labels(page)
    assert len(labels(page)) == 5


def test_search_counts_and_marks(page) -> None:
    page.fill("#flame-search", "TRAIN.py")
    assert page.inner_text("#flame-found") == "2 frames"
    assert page.locator(".flame-box.match").count() == 2


def test_hostile_names_stay_text(page) -> None:
    for index in range(page.locator(".flame-box").count()):
        page.keyboard.press("Escape")
        page.locator(".flame-box").nth(index).click()
        page.click("#flame-home")
    assert page.evaluate("window.pwned") is None
    assert page.locator("#flame-graph > .flame-box > *").count() == 0
    assert page.locator(".flame-section script, .flame-section img").count() == 0


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(open_report, width: int, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = open_report(with_flame(), width=width, color_scheme=scheme, static=True, bypass_csp=True, fragment="#flame")
    page.wait_for_selector("#flame-graph[data-ready]")
    page.locator(".flame-box").nth(2).click()
    found = axe.run(page, context=".flame-section", options={"resultTypes": ["violations"]}).response["violations"]
    assert [(one["id"], one["nodes"][0]["html"][:150], one["nodes"][0]["failureSummary"]) for one in found] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
