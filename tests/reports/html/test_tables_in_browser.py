"""Tables of the report in a browser: what the reader chose stays in the address, tables are copied, rows are found."""

from __future__ import annotations

import csv
import io
import re
from itertools import pairwise
from pathlib import Path

import pytest
import sample
from msgspec.structs import replace

from fixtures.real_traces import TRACES
from traceopt.api import analyze
from traceopt.reports.html.table_rows import PRINTED_ROWS
from traceopt.result.document import Result
from traceopt.result.encoding.packing import embedded_result
from traceopt.result.finding import Location
from traceopt.rules.fingerprint import with_ids

CLIPBOARD = ["clipboard-read", "clipboard-write"]
ROWS = "#kernels-table tbody tr:visible"
PAPER_PIXELS = 703  # A4 without its margins
LONG_EXAMPLES = sorted((Path(__file__).resolve().parents[3] / "examples").glob("*/report-before.html"))
LONG_REPORTS = [
    "kineto/resnet50_num_workers_4/worker0.1623212756351.pt.trace.json.gz",
    "tracelens/mi300/resnet_act_checkpoint.json.gz",
    "hta/trace_diff/control/control.json.gz",
]
CUT_TABLES = """() => [...document.querySelectorAll("main .scroll")]
    .filter(box => box.scrollWidth > box.clientWidth + 1)
    .map(box => box.querySelector("table").id)"""


def copied(page, table: str, kind: str) -> str:
    page.locator(f"[data-table={table}][data-as={kind}]").click()
    page.wait_for_selector(f"[data-table={table}][data-as={kind}]:text-is('Copied')")
    return page.evaluate("navigator.clipboard.readText()")


def twelve_fixes() -> Result:
    rich = sample.rich()
    elsewhere = [replace(one, locations=[Location("other.py", 1, None)]) for one in rich.findings]
    return replace(rich, findings=with_ids([*rich.findings, *elsewhere]))


def test_sorting_and_filters_are_kept_in_the_address(open_report) -> None:
    page = open_report(twelve_fixes(), static=True)
    page.click("#gemms-table th:nth-child(3) button")
    page.fill("#kernels-filter", "vit.py")
    page.select_option("[data-fix-filter=effort]", "One line")
    again = page.context.new_page()
    again.goto(page.url)
    assert again.get_attribute("#gemms-table th:nth-child(3)", "aria-sort") == "descending"
    assert again.locator(ROWS).count() == 2
    assert again.locator(".fixes > li:visible").count() == 4
    page.fill("#kernels-filter", "")
    page.click("#fixes ~ .fixes a[href='#DL001']")
    page.wait_for_url(re.compile(r"#DL001\?"))
    assert "kernels-filter" not in page.url


@pytest.mark.parametrize(
    "fragment", ["#?gemms-table.sort=99d&fixes.risk=nothing", "#%%%?x", "#kernels?gemms-table.sort=d"]
)
def test_an_address_that_cannot_be_is_ignored(open_report, fragment: str) -> None:
    page = open_report(sample.rich(), static=True, fragment=fragment)
    assert page.locator(".fixes > li:visible").count() == 6


def test_a_filter_without_a_match_says_so(open_report) -> None:
    page = open_report(sample.rich(), static=True)
    page.fill("#kernels-filter", "<img src=x>")
    assert page.inner_text(ROWS) == "No row contains “<img src=x>”."
    assert page.inner_text("#kernels-count") == "0 of 5 shown"
    page.fill("#kernels-filter", "")
    assert page.locator(ROWS).count() == 5


def test_fixes_are_filtered_by_family_effort_and_risk(open_report) -> None:
    assert open_report(sample.rich(), static=True).locator("#fix-filters select").count() == 0  # six fixes
    page = open_report(twelve_fixes(), static=True)
    page.select_option("[data-fix-filter=family]", "input")
    assert page.locator(".fixes > li:visible").count() == 4
    page.select_option("[data-fix-filter=risk]", "More memory")
    assert page.locator(".fixes > li:visible").count() == 2
    assert page.inner_text("#fixes-count") == "2 of 12 shown"
    page.select_option("[data-fix-filter=effort]", "One line")
    assert page.inner_text("#fixes-count") == "No fix matches all of these."
    assert page.locator("section[aria-labelledby=fixes] h3:visible").count() == 0


def test_a_table_is_copied_as_it_is_shown(open_report) -> None:
    rich = sample.rich()
    page = open_report(rich, static=True, permissions=CLIPBOARD)
    rows = list(csv.reader(io.StringIO(copied(page, "kernels-table", "csv"))))
    assert rows[0][:3] == ["Kernel", "ms per step", "Of GPU, %"]
    assert [row[0] for row in rows[1:]] == [kernel.name for kernel in rich.kernels]
    assert rows[3][rows[0].index("Calls")] == "1202"
    assert all(float(row[2]) > 0 for row in rows[1:])
    gemms = list(csv.DictReader(io.StringIO(copied(page, "gemms-table", "csv"))))
    assert [row["N, note"] for row in gemms] == ["", "", "", "not ×4"]
    assert all(row["N"].isdigit() for row in gemms)
    page.fill("#kernels-filter", "fmha")
    lines = copied(page, "kernels-table", "markdown").splitlines()
    assert len(lines) == 3
    assert lines[1].startswith("| --- | --- |")
    assert lines[2].startswith("| fmha\\_cutlassF\\_f32")


def test_a_copied_name_runs_in_no_spreadsheet(open_report) -> None:
    rich = sample.rich()
    names = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)"]
    kernels = [replace(rich.kernels[0], name=name, location=None) for name in names]
    page = open_report(replace(rich, kernels=kernels), static=True, permissions=CLIPBOARD)
    rows = list(csv.reader(io.StringIO(copied(page, "kernels-table", "csv"))))
    assert [row[0][0] for row in rows[1:]] == ["'"] * len(names)


def test_evidence_leads_to_the_row_that_it_sums(open_report) -> None:
    page = open_report(sample.rich(), static=True)
    page.evaluate("document.querySelector('#TC002').open = true")
    page.click("#TC002 a[href='#kernels-2']")
    page.wait_for_selector("#kernels-2.linked", state="visible")  # the page hears of the link a moment after the click
    part = page.locator("#DL001 .estimate a")
    assert part.get_attribute("href") == "#part-data_loading"
    back = page.locator("#part-data_loading a")
    assert back.get_attribute("href") == "#DL001"


def test_a_link_opens_the_closed_section_around_it(open_report) -> None:
    page = open_report(sample.rich(), static=True, fragment="#ops")
    assert page.locator("#ops-table").is_visible()


@pytest.mark.parametrize("width", [1280, 390])
def test_the_first_column_stays_when_a_table_scrolls(open_report, width: int) -> None:
    page = open_report(sample.rich(), width=width, static=True)
    box = page.locator(".table-box:has(#kernels-table)")
    scroll = box.locator(".scroll")
    before = page.locator("#kernels-1 td:first-child").bounding_box()
    edges = "boxes => boxes.map(box => getComputedStyle(box).position)"
    assert set(page.locator(".more-right").evaluate_all(edges)) <= {"relative"}  # the shadow stays on its table
    assert scroll.evaluate("box => box.scrollWidth > box.clientWidth") == ("more-right" in box.get_attribute("class"))
    scroll.evaluate("box => { box.scrollLeft = box.scrollWidth; box.dispatchEvent(new Event('scroll')) }")
    assert page.locator("#kernels-1 td:first-child").bounding_box()["x"] == before["x"]
    assert "more-right" not in box.get_attribute("class")


def test_kind_and_tensor_cores_are_seen_without_scrolling(open_report) -> None:
    page = open_report(sample.rich(), static=True)
    edge = page.evaluate("document.querySelector('#kernels-table').closest('.scroll').getBoundingClientRect().right")
    for name in ("Kind", "Tensor Cores"):
        box = page.locator(f"#kernels-table th:has-text('{name}')").bounding_box()
        assert box["x"] + box["width"] <= edge


def pages_on_paper(page) -> int:
    return len(re.findall(rb"/Type\s*/Page\b(?!s)", page.pdf(format="A4", prefer_css_page_size=True)))


@pytest.mark.parametrize("build", [sample.rich, sample.cpu_only, sample.limited, sample.stress])
def test_print_fits_six_pages(open_report, build) -> None:
    assert 1 <= pages_on_paper(open_report(build(), static=True)) <= 6


@pytest.mark.parametrize("report", LONG_EXAMPLES, ids=lambda path: path.parent.name)
def test_the_longest_examples_fit_six_pages(open_report, report: Path) -> None:
    document = Result.from_json(embedded_result(report.read_text(encoding="utf-8")))
    assert pages_on_paper(open_report(document)) <= 6


@pytest.mark.real_traces
@pytest.mark.parametrize("file", LONG_REPORTS)
def test_the_longest_reports_of_real_traces_fit_six_pages(open_report, file: str) -> None:
    page = open_report(analyze(str(TRACES / file)))
    assert pages_on_paper(page) <= 6
    page.set_viewport_size({"width": PAPER_PIXELS, "height": 1000})
    page.emulate_media(media="print")
    assert page.evaluate(CUT_TABLES) == []


def test_paper_says_how_many_rows_it_has(open_report) -> None:
    """The number is in the sentence and in the style sheet."""
    page = open_report(sample.stress(), static=True)
    page.emulate_media(media="print")
    boxes = page.locator(".table-box:has(> .print-only):has(tr:visible)")
    assert boxes.count() > 2
    for box in boxes.all():
        rows = box.locator("tbody tr:visible").count()
        assert rows == PRINTED_ROWS
        assert box.locator("> .print-only").inner_text().startswith(f"The first {rows} of ")


def test_no_fix_is_split_over_pages_and_pages_are_numbered(open_report) -> None:
    page = open_report(sample.rich(), static=True)
    page.emulate_media(media="print")
    broken = "boxes => boxes.map(box => getComputedStyle(box).breakInside)"
    assert set(page.locator(".fixes > li").evaluate_all(broken)) == {"avoid"}
    corner = """() => [...document.styleSheets].flatMap(sheet => [...sheet.cssRules])
        .filter(rule => rule.media?.mediaText === "print")
        .flatMap(rule => [...rule.cssRules]).filter(rule => rule instanceof CSSPageRule).map(rule => rule.cssText)"""
    assert "counter(page)" in "".join(page.evaluate(corner))


def test_charts_stand_two_in_a_row_on_paper(open_report) -> None:
    page = open_report(sample.rich(), static=True)
    page.emulate_media(media="print")
    steps, timeline = (
        page.locator(f"section[aria-labelledby={name}]").bounding_box() for name in ("steps", "timeline")
    )
    assert steps["y"] == timeline["y"]
    assert steps["x"] + steps["width"] <= timeline["x"]


@pytest.mark.parametrize("share", [0.05, 0.06, 0.07, 0.08, 0.1, 0.2])
def test_labels_stay_inside_their_bars_on_paper(open_report, share: float) -> None:
    """A label that does not fit is left out, not cut: "13.7 r"."""
    rich = sample.rich()
    first, *rest = rich.breakdown
    whole_us = 412_000.0
    parts = [replace(first, us_per_step=share * whole_us, share=share), replace(rest[-1], us_per_step=whole_us * 0.6)]
    page = open_report(replace(rich, breakdown=parts), static=True)
    page.set_viewport_size({"width": 690, "height": 1000})
    page.emulate_media(media="print")
    assert cut_labels(page) == []


@pytest.mark.parametrize("width", [740, 860, 1280])
def test_labels_and_parts_have_room_at_every_width(open_report, width: int) -> None:
    """Between a phone and a wide screen, the parts were in columns of one word."""
    rich = sample.rich()
    first, *_ = rich.breakdown
    shares = [0.05, 0.08, 0.11, 0.16, 0.24, 0.36]
    parts = [
        replace(first, name=f"p{share}", label="Copying pageable memory", us_per_step=share * 412_000.0, share=share)
        for share in shares
    ]
    page = open_report(replace(rich, breakdown=parts), static=True, width=width)
    assert cut_labels(page) == []
    widths = page.locator(".two td:first-child").evaluate_all("cells => cells.map(cell => cell.offsetWidth)")
    assert min(widths) >= 180


def cut_labels(page) -> list[str]:
    """Labels in bars that are seen, but not whole. A shortened name counts as whole."""
    seen = page.evaluate(
        """() => [...document.querySelectorAll(".bar > span > .tag, .bar .parts > span > .tag")].map(tag => {
            const [inner, outer] = [tag, tag.parentElement].map(box => box.getBoundingClientRect());
            return {text: tag.textContent, shown: inner.height && inner.top < outer.bottom - 1,
                cut: inner.right > outer.right + 1 || tag.scrollWidth > tag.clientWidth};
        })"""
    )
    assert any(label["shown"] for label in seen)
    return [label["text"] for label in seen if label["shown"] and label["cut"]]


def test_no_table_is_cut_on_paper(open_report) -> None:
    """Nothing scrolls there: what is beyond the edge is lost."""
    rich = sample.rich()
    sizes = "32x1024x14x14, weight 2048x1024x1x1"
    far = Location("torchvision/models/resnet.py", 1282)
    shaped = [
        replace(op, name="aten::cudnn_convolution_backward", sizes=sizes, location=far, intensity=99.2, gb_per_s=85.0)
        for op in rich.shaped_ops
    ]
    gemms = [replace(gemm, location=far, intensity=15.3, gb_per_s=456.0) for gemm in rich.gemms]
    ranks = [replace(row, waited_for_us=9.0, path=f"worker0_step_12.16941282015{'4' * 20}.gz") for row in rich.ranks]
    page = open_report(replace(rich, shaped_ops=shaped, gemms=gemms, ranks=ranks), static=True)
    page.set_viewport_size({"width": PAPER_PIXELS, "height": 1000})
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(CUT_TABLES) == []


def test_a_fix_above_the_plan_is_open_on_paper(open_report) -> None:
    rich = sample.rich()
    page = open_report(replace(rich, combined=None, plan=[]), static=True)
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator(".fix-body .estimate:visible").count() == 1


def test_modules_of_an_inference_have_no_backward(open_report) -> None:
    rich = sample.rich()
    page = open_report(rich, static=True)
    assert "Backward GPU ms" in page.inner_text("#modules-table thead")
    forward = [replace(module, backward_us_per_step=0.0) for module in rich.modules]
    page = open_report(replace(rich, modules=forward), static=True)
    assert "Backward GPU ms" not in page.inner_text("#modules-table thead")
    assert page.locator("#modules-table tbody tr:visible").count() == 3


def test_a_part_of_next_to_no_time_has_no_row(open_report) -> None:
    rich = sample.rich()
    tiny = replace(rich.breakdown[3], us_per_step=0.011)
    page = open_report(replace(rich, breakdown=[*rich.breakdown[:3], tiny, *rich.breakdown[4:]]), static=True)
    assert page.locator("#part-host_sync").count() == 1
    assert page.locator("#part-untraced").count() == 0


def test_columns_without_a_value_are_left_out(open_report) -> None:
    rich = sample.rich()
    bare = [
        replace(kernel, tflops=None, gb_per_s=None, peak_share=None, limit=None, op=None) for kernel in rich.kernels
    ]
    head = open_report(replace(rich, kernels=bare), static=True).inner_text("#kernels-table thead")
    assert "Calls" in head
    assert not any(name in head for name in ("Of peak", "TFLOP/s", "GB/s", "Operator"))


def test_the_numbers_of_a_fix_stay_apart_on_a_phone(open_report) -> None:
    page = open_report(sample.rich(), width=390, static=True)
    boxes = [part.bounding_box() for part in page.locator("#DL001 summary .saving > *").all()]
    assert len(boxes) == 3
    for one, other in pairwise(boxes):
        assert one["x"] + one["width"] + 4 <= other["x"] or one["y"] + one["height"] <= other["y"] + 1
    card = page.locator("#DL001").bounding_box()
    assert all(box["x"] + box["width"] <= card["x"] + card["width"] for box in boxes)


@pytest.mark.parametrize("table", ["kernels-table", "gemms-table", "shaped-table"])
def test_small_bars_are_as_long_as_their_numbers(open_report, table: str) -> None:
    page = open_report(sample.rich(), static=True)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    bars = page.evaluate(
        "table => [...document.querySelectorAll(`#${table} .mini`)].map(bar => "
        "[bar.getBoundingClientRect().width, parseFloat(bar.parentElement.textContent.replace(',', ''))])",
        table,
    )
    longest, largest = max(bars, key=lambda bar: bar[1])
    assert len({width for width, _ in bars}) > 1
    for width, number in bars:
        assert width == pytest.approx(max(1, longest * number / largest), abs=1)
