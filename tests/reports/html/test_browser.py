"""The HTML report in a real browser: safe, quiet, readable at every width, usable without mouse or script."""

from __future__ import annotations

import json

import pytest
import sample
from support.page_parts import unpack_timeline

from traceopt.analyzer.vocabulary.causes.span_categories import SPAN_CATEGORIES
from traceopt.analyzer.vocabulary.causes.table import CAUSES
from traceopt.reports.agent.prompt import prompt
from traceopt.reports.html.page import TIMELINE_SCRIPTS
from traceopt.reports.html.page_scripts import plotly
from traceopt.reports.html.table_rows import PRINTED_ROWS
from traceopt.reports.words.display import for_display

OVERFLOW_PX = "document.documentElement.scrollWidth - innerWidth"
OPEN_ALL = "document.querySelectorAll('details').forEach(d => d.open = true)"
ATTACK = '<img src=x onerror="window.pwned=3">'


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("build", sample.ALL)
def test_nothing_is_wider_than_the_screen(open_report, build, width: int) -> None:
    page = open_report(build(), width=width, static=True)
    assert page.evaluate(OVERFLOW_PX) <= 0
    page.evaluate(OPEN_ALL)
    assert page.evaluate(OVERFLOW_PX) <= 0
    assert page.evaluate("window.pwned || 0") == 0


def test_a_phone_shows_whole_links_and_the_others_on_request(open_report) -> None:
    page = open_report(sample.rich(), width=390, static=True)
    nav = page.locator("nav.top").bounding_box()
    boxes = [link.bounding_box() for link in page.locator("#links a").all()]
    shown = [box for box in boxes if box["y"] + box["height"] <= nav["y"] + nav["height"]]
    assert 0 < len(shown) < len(boxes)
    button = page.locator("#more-links").bounding_box()
    assert all(box["x"] + box["width"] <= button["x"] for box in shown)
    page.click("#more-links")
    assert page.get_attribute("#more-links", "aria-expanded") == "true"
    nav = page.locator("nav.top").bounding_box()
    last = page.locator("#links a").last.bounding_box()
    assert last["y"] + last["height"] <= nav["y"] + nav["height"]
    page.locator("#links a").first.click()
    assert page.get_attribute("#more-links", "aria-expanded") == "false"


def test_a_phone_has_closed_sections_and_targets_of_24_pixels(open_report) -> None:
    page = open_report(sample.stress(), width=390)
    assert page.evaluate("document.documentElement.scrollHeight") < 7_000
    page.click("section:has(#kernels) summary")
    assert page.locator("#kernels-table").is_visible()
    small = page.evaluate(
        """() => [...document.querySelectorAll("button, summary, select, label:has(input), .footnotes a, .fix-link")]
            .filter(one => one.checkVisibility() && one.getBoundingClientRect().height)
            .filter(one => Math.min(one.offsetWidth, one.offsetHeight) < 24).map(one => one.outerHTML.slice(0, 99))"""
    )
    assert small == []


def test_hostile_strings_stay_text(open_report) -> None:
    page = open_report(sample.hostile(), figures=True)
    page.evaluate(OPEN_ALL)
    unpack_timeline(page)
    page.locator("#span-python").check()
    page.focus("#span-canvas")
    told = []
    for _ in range(12):  # every row, and each of its spans
        page.keyboard.press("ArrowDown")
        for _ in range(3):
            page.keyboard.press("ArrowRight")
            told.append(page.inner_text("#span-details"))
    page.fill("#span-search", "<img")
    page.keyboard.press("Enter")
    for box in ("#steps-scrub", "#memory-scrub"):
        page.focus(box)
        page.keyboard.press("ArrowRight")
    page.locator("#span-canvas").scroll_into_view_if_needed()
    box = page.locator("#span-canvas").bounding_box()
    for across in (0.2, 0.35, 0.55, 0.6, 0.75):
        for down in (0.1, 0.3, 0.55, 0.8):
            page.mouse.move(box["x"] + box["width"] * across, box["y"] + box["height"] * down)
    assert page.evaluate("window.pwned || 0") == 0
    assert not page.title().startswith("pwned")
    assert page.evaluate("document.scripts.length") == 7 + len(TIMELINE_SCRIPTS) + 4 * (plotly() is not None)
    assert any(ATTACK in text for text in told)
    assert page.evaluate("document.styleSheets.length >= 1 && getComputedStyle(document.body).display") == "block"
    foreign = "[...document.querySelectorAll('a')].filter(a => (a.getAttribute('href') || '')[0] !== '#').length"
    assert page.evaluate(foreign) == 0
    foreign = "img, iframe, object, embed, link, base, [onerror], [onload], [onmouseover], b:text-is('bold')"
    assert page.locator(foreign).count() == 0
    assert page.evaluate("document.querySelectorAll('h1').length") == 1
    assert page.evaluate(OVERFLOW_PX) <= 0
    assert ATTACK in page.inner_text("main")


# axe cannot judge labels on patterns and bars; test_colors_have_contrast does. The dark scheme has other colors and
# nothing else, so one page shows it.
@pytest.mark.parametrize(
    ("build", "scheme"),
    [
        *((build, "light") for build in (sample.rich, sample.many_ranks, sample.cpu_only, sample.unusable)),
        (sample.rich, "dark"),
    ],
)
def test_axe_finds_no_violation(open_report, build, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = open_report(build(), color_scheme=scheme, static=build is not sample.rich, figures=True)
    page.evaluate(OPEN_ALL)
    if build is sample.rich:
        unpack_timeline(page)
        page.focus("#span-canvas")
        page.keyboard.press("Enter")
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        only = {"runOnly": ["color-contrast"]} if scheme == "dark" else {}
        violations = axe.run(page, options={"resultTypes": ["violations"], **only}).response["violations"]
        found = {rule["id"]: [node["html"][:160] for node in rule["nodes"]] for rule in violations}
        assert found == {}, width
        if build is sample.rich:
            page.focus("#span-canvas")
            page.keyboard.press("m")  # the sums of a range, on a phone


def test_theme_follows_the_system_and_the_button(open_report) -> None:
    page = open_report(sample.rich(), color_scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(background) == "rgb(14, 17, 22)"
    unpack_timeline(page)
    page.click("#theme")
    assert page.evaluate(background) == "rgb(255, 255, 255)"
    assert page.inner_text("#theme") == "Dark"


@pytest.mark.parametrize("width", [1280, 390])
def test_the_parts_of_the_bar_answer(open_report, width: int) -> None:
    """The pointer and the focus show what a part is, Escape hides it, a click or Enter keeps it with its links."""
    page = open_report(sample.rich(), width=width, static=True)
    loading, syncs = (page.locator(f"#parts a[data-answer={name}]") for name in ("data_loading", "host_sync"))
    answer = page.locator("#answer-data_loading")
    loading.hover()
    told = answer.inner_text().replace("\u00a0", " ")
    assert told.startswith("Waiting for data\n")
    assert "The loop is inside the loader's __next__." in told
    assert "Load data in worker processes" in told
    page.keyboard.press("Escape")
    assert not answer.is_visible()
    syncs.focus()
    assert page.locator("#answer-host_sync").is_visible()
    loading.click()
    page.mouse.move(0, 0)
    page.wait_for_timeout(300)
    assert page.locator(".answer:visible").count() == 1
    answer.locator("a").click()
    page.wait_for_url(lambda url: url.endswith("#DL001"))
    assert not answer.is_visible()
    page.mouse.move(0, 0)
    syncs.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.closest('.answer').id") == "answer-host_sync"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.dataset.answer") == "host_sync"
    assert page.locator(".answer:visible").count() == 0


def test_complete_without_javascript(open_report) -> None:
    page = open_report(sample.rich(), java_script_enabled=False, static=True)
    words = page.locator("main").inner_text()
    for phrase in [
        "The GPU is idle for 61%",
        "Load data in worker processes",
        "GPU idle 187.0",
        "aten::addmm",
        "Checks without a finding",
    ]:
        assert phrase in words
    for control in page.locator(".js").all():
        assert not control.is_visible()


def test_static_report_offers_no_zoom(open_report) -> None:
    page = open_report(sample.rich(), static=True)
    assert page.locator("#span-canvas").count() == 0
    assert page.locator("#spans-gz").count() == 0


def test_keyboard_opens_a_card(open_report) -> None:
    page = open_report(sample.rich(), static=True)
    page.focus("#TC002 summary")
    page.keyboard.press("Enter")
    assert page.evaluate("document.querySelector('#TC002').open") is True
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('#TC002') !== null") is True


def test_the_keyboard_reaches_every_control(open_report) -> None:
    """In page order: skip link, sections, theme, first fix, cards, zoom, sorting, filters, checks."""
    page = open_report(sample.rich(), figures=True)
    unpack_timeline(page)
    reached: list[str] = []
    for _ in range(240):
        page.keyboard.press("Tab")
        focus = "document.activeElement"
        if page.evaluate(f"{focus} === document.body"):
            break
        reached.append(page.evaluate(f"({focus}.id || {focus}.textContent || {focus}.ariaLabel || '').trim()"))
    wanted = ["Skip to the fixes", "Time", "theme", "Load data in worker processes", "openall", "Copy"]
    wanted += [
        "steps-scrub",
        "span-search",
        "span-canvas",
        "ms per step",
        "kernels-filter",
        "Checks without a finding",
    ]
    places = [next(place for place, name in enumerate(reached) if name == want) for want in wanted]
    assert places == sorted(places)
    odd = "[...document.querySelectorAll('[tabindex]')].filter(element => element.tabIndex !== 0).length"
    assert page.evaluate(odd) == 0


def test_a_link_opens_its_card(open_report) -> None:
    page = open_report(sample.rich(), fragment="#HS002", static=True)
    assert page.evaluate("document.querySelector('#HS002').open") is True
    assert page.evaluate("document.querySelector('#TC002').open") is False
    page.evaluate("location.hash = '#TC002'")
    page.wait_for_selector("#TC002[open]")
    page.evaluate("document.querySelectorAll('details.fix').forEach(d => d.open = false)")
    page.click(".start a")
    page.wait_for_selector("#DL001[open]")


def test_open_all(open_report) -> None:
    page = open_report(sample.rich(), static=True)
    page.click("#openall")
    assert page.evaluate("document.querySelectorAll('details.fix[open]').length") == 6
    page.click("#openall")
    assert page.evaluate("document.querySelectorAll('details.fix[open]').length") == 0


def column(page, table: str, number: int) -> list[str]:
    return [cell.strip() for cell in page.locator(f"{table} tbody td:nth-child({number})").all_inner_texts()]


def headings(page, table: str) -> list[str]:
    return [heading.strip() for heading in page.locator(f"{table} thead th").all_text_contents()]


def test_tables_sort_by_number_and_by_name(open_report) -> None:
    page = open_report(sample.rich(), static=True)
    calls = next(place for place, name in enumerate(headings(page, "#kernels-table"), 1) if name == "Calls")
    page.focus(f"#kernels-table th:nth-child({calls}) button")
    page.keyboard.press("Enter")
    assert column(page, "#kernels-table", calls) == ["1,202", "48", "12", "3", "2.5"]
    heading = page.locator(f"#kernels-table th:nth-child({calls})")
    assert heading.get_attribute("aria-sort") == "descending"
    page.keyboard.press("Enter")
    assert column(page, "#kernels-table", calls) == ["2.5", "3", "12", "48", "1,202"]
    page.click("#gemms-table th:nth-child(4) button")
    assert column(page, "#gemms-table", 4) == ["48.9", "45.8", "3.3", "–"]
    page.click("#gemms-table th:nth-child(4) button")
    assert column(page, "#gemms-table", 4) == ["3.3", "45.8", "48.9", "–"]
    kind = headings(page, "#kernels-table").index("Kind") + 1
    page.click(f"#kernels-table th:nth-child({kind}) button")
    assert column(page, "#kernels-table", kind) == sorted(column(page, "#kernels-table", kind))


def test_tables_filter(open_report) -> None:
    page = open_report(sample.rich(), static=True)
    page.fill("#kernels-filter", "VIT.PY")
    assert page.inner_text("#kernels-count") == "2 of 5 shown"
    assert page.locator("#kernels-table tbody tr:visible").count() == 2
    page.fill("#kernels-filter", "")
    assert page.inner_text("#kernels-count") == ""


FOLDED = "#kernels-table tbody tr:visible"


def test_long_tables_unfold_without_javascript(open_report) -> None:
    page = open_report(sample.stress(), static=True, java_script_enabled=False)
    assert page.locator(FOLDED).count() == 15
    page.get_by_text("Show all 200").first.scroll_into_view_if_needed()
    page.click("section[aria-labelledby=kernels] .more summary")
    assert page.locator(FOLDED).count() == 200


def test_sort_and_filter_act_on_folded_rows(open_report) -> None:
    page = open_report(sample.stress(), static=True)
    page.click("#kernels-table th:nth-child(2) button")
    visible = page.locator(FOLDED)
    assert visible.count() == 15
    times = [float(text) for text in column(page, "#kernels-table", 2)]
    assert len(times) == 200
    assert times == sorted(times)
    page.fill("#kernels-filter", "softmax")
    assert visible.count() == 25
    assert not page.locator("section[aria-labelledby=kernels] .more").is_visible()
    page.fill("#kernels-filter", "")
    assert visible.count() == 15
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert visible.count() == PRINTED_ROWS


def test_copy_buttons_copy_the_code(open_report) -> None:
    result = sample.rich()
    page = open_report(result, static=True, permissions=["clipboard-read", "clipboard-write"])
    for anchor, expected in (
        ("DL001-code", result.findings[0].fix.code),
        ("DL003-patch", result.findings[3].fix.patch),
    ):
        page.evaluate("document.querySelectorAll('details.fix').forEach(d => d.open = true)")
        button = page.locator(f"[data-copy={anchor}]")
        button.click()
        page.wait_for_selector(f"[data-copy={anchor}]:text-is('Copied')")
        assert page.evaluate("navigator.clipboard.readText()") == expected


def test_a_fix_is_copied_as_a_prompt(open_report) -> None:
    page = open_report(sample.rich(), permissions=["clipboard-read", "clipboard-write"])
    page.evaluate("document.querySelectorAll('details.fix').forEach(d => d.open = true)")
    page.locator("[data-prompt=DL001]").click()
    page.wait_for_selector("[data-prompt=DL001]:text-is('Copied')")
    document = for_display(sample.rich())
    assert page.evaluate("navigator.clipboard.readText()") == prompt(document.findings[0], document) + "\n"


def test_print_opens_the_plan(open_report) -> None:
    page = open_report(sample.rich(), static=True, color_scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.querySelectorAll('details.fix.planned').length") == 3
    assert page.evaluate("document.querySelectorAll('details.fix.planned:not([open])').length") == 0
    cards = page.locator("details.fix").count()
    for part in (".fix-body .why", ".fix-body .fix-text"):
        assert page.locator(f"{part}:visible").count() == cards, "the fixes outside the plan are short, but there"
    assert page.locator(".estimate:visible").count() == 3
    assert page.locator("#ops-table tbody tr:visible").count() > 0
    assert "The HTML report lists each check with its reason." in page.inner_text("section[aria-labelledby=checks]")
    assert not page.locator("section[aria-labelledby=checks] .sec").first.is_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.querySelectorAll('details.fix[open]').length") == 1


# Contrast of the color tokens: text 4.5:1 and more, graphics 3:1 (WCAG 2.2). "wait" always carries a label.
TEXT_PAIRS = [
    ("ink", "bg"), ("mute", "bg"), ("mute", "soft"), ("link", "bg"), ("ink", "card"), ("mute", "card"),
    ("high", "high-bg"), ("medium", "medium-bg"), ("low", "low-bg"), ("ink", "add"), ("ink", "del"),
    ("ink", "medium-bg"), ("ink", "high-bg"), ("ink", "wait"),
    *(("card", row.color) for row in SPAN_CATEGORIES if row.color != "wait"),
]  # fmt: skip
GRAPHICS = {cause.look.color for cause in CAUSES} | {"ok"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colors_have_contrast(open_report, scheme: str) -> None:
    page = open_report(sample.empty(), color_scheme=scheme)
    names = sorted({name for pair in TEXT_PAIRS for name in pair} | GRAPHICS)
    colors = page.evaluate(
        "names => Object.fromEntries(names.map(name => {"
        " document.body.style.color = `var(--${name})`;"
        " return [name, getComputedStyle(document.body).color.match(/\\d+/g).map(Number)] }))",
        names,
    )

    def luminance(name: str) -> float:
        channels = [value / 255 for value in colors[name]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(one: str, other: str) -> float:
        low, high = sorted((luminance(one), luminance(other)))
        return (high + 0.05) / (low + 0.05)

    too_low = {pair: round(contrast(*pair), 2) for pair in TEXT_PAIRS if contrast(*pair) < 4.5}
    too_low |= {(name, "card"): round(contrast(name, "card"), 2) for name in GRAPHICS if contrast(name, "card") < 3}
    assert json.dumps({" on ".join(pair): ratio for pair, ratio in too_low.items()}) == "{}"
