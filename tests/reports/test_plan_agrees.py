"""Every format prints the numbers of the document's plan, and the rows of the plan add up."""

from __future__ import annotations

import re

import pytest
import sample
from msgspec.structs import replace
from support.traces import GENERATED, REAL, AnalyzedTrace, GetExample, over

from traceopt.assistants.finding_answers import analyzed
from traceopt.reports.html.notebook import render_notebook
from traceopt.reports.html.page import render_html
from traceopt.reports.text.markdown import FIXES, render_markdown
from traceopt.reports.text.terminal import render_terminal
from traceopt.reports.words import step_words
from traceopt.reports.words.display import for_display
from traceopt.reports.words.fixes import fix_cards, headline, plan_numbers
from traceopt.result.document import Result
from traceopt.result.words import quantities

NUMBER = r"(≈ )?(?P<number>[\d,.]+) m?s"


def plain(text: str) -> str:
    return text.replace("\u00a0", " ").replace("&nbsp;", " ")


def words_of(html: str) -> str:
    body = re.sub(r"<(script|style)\b.*?</\1>", "", html, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", plain(body)))


def milliseconds(text: str) -> float:
    return float(text.split()[0].replace(",", "")) * unit_ms(text)


def unit_ms(text: str) -> float:
    return 1_000 if text.split()[1] == "s" else 1


def rounding(text: str) -> float:
    """Half a unit of the last digit of "1,480 ms"; of a whole number that ends in zeros it may be any of them."""
    number = text.split()[0].replace(",", "")
    if "." in number:
        return 0.5 * 10 ** -len(number.partition(".")[2]) * unit_ms(text)
    return 0.5 * 10 ** (len(number) - len(number.rstrip("0"))) * unit_ms(text)


def assert_adds_up(result: Result) -> None:
    """The step now and the step after the plan, and the parts of both."""
    step_us, combined = result.step.typical_us, result.combined
    if combined is None:
        return
    assert step_us is not None
    assert sum(part.us_per_step for part in result.breakdown) == pytest.approx(step_us, rel=1e-3)
    assert combined.share == pytest.approx(combined.saving_us / step_us, abs=1e-5)
    if combined.unrecorded is not None:
        left = combined.unrecorded.step_us_after / combined.unrecorded.step_us
        assert left == pytest.approx(1 - combined.share, abs=1e-4)
    if combined.breakdown_after:
        left_us = sum(part.us_per_step for part in combined.breakdown_after)
        assert left_us == pytest.approx(combined.step_us_after, rel=1e-3)
        now = {part.name: part.us_per_step for part in result.breakdown}
        work = [part for part in combined.breakdown_after if part.busy and part.name not in ("communication", "copies")]
        assert all(part.us_per_step <= now[part.name] + 0.01 for part in work)  # less of the others may be hidden


def assert_printed(result: Result, html: str) -> None:
    """The formats: the row of each fix has the numbers of the document, rounded once."""
    document = for_display(result)
    if not document.plan or document.combined is None:
        return
    terminals = [
        plain(render_terminal(result, width=width, color=False, unicode=True)).splitlines() for width in (60, 80, 120)
    ]
    comment = plain(render_markdown(result))
    notebook, page = words_of(render_notebook(result)), words_of(html)
    for card in fix_cards.groups(document).plan:
        row = card.row
        assert row is not None
        numbers = plan_numbers.row_numbers(row, document)
        texts = [plain(text) for text in (numbers.saves, numbers.alone, numbers.step_after)]
        for text, us in zip(texts, (row.saving_us, row.alone_us, row.step_us_after), strict=True):
            assert abs(milliseconds(text) - us / 1e3) <= 2.001 * rounding(text), "a difference of two rounded steps"
        saves, alone, after = texts
        units = {text.split()[1] for text in (saves, after, plain(quantities.ms_of_us(document.step.typical_us)))}
        assert len(units) == 1, "16.2 s minus 4,720 ms is hard to read"
        pattern = re.compile(rf" *{card.number} +{re.escape(saves)} +{re.escape(alone)} +{re.escape(after)}  ")
        assert all(any(pattern.match(line) for line in lines) for lines in terminals)
        if card.number is not None and card.number <= FIXES:
            assert f"| {saves} | {after} |" in comment
            assert re.search(rf"\b{card.number}\. .*{re.escape(f'{saves} {alone} {after}')}", notebook)
        assert f"saves {saves} alone {alone} {step_words.step_noun(document)} after {after}" in page
    after = plain(plan_numbers.step_after(document))
    assert after == plain(plan_numbers.plan_time(document.plan[-1].step_us_after, document))
    for text in (plain("".join(headline.lead(document))), comment, notebook, page, " ".join(terminals[2])):
        assert f"→ about {after}" in text
    tile = headline.tiles(document)[2]
    assert plain(f"{tile.value} {tile.unit}") == f"≈ {after}"
    combined = document.combined
    low_us, high_us = combined.low_us, combined.high_us
    assert 0 <= low_us <= combined.saving_us + 0.01 * len(document.plan)
    assert combined.saving_us <= high_us + 0.01 * len(document.plan)
    shares = [quantities.percent(us / (combined.saving_us + combined.step_us_after)) for us in (low_us, high_us)]
    wide = f"{quantities.percent(combined.share)} less ({shares[0].rstrip('%')}–{shares[1]})"
    assert tile.note.startswith(wide if shares[0] != shares[1] else f"{shares[0]} less")
    if document.breakdown:
        assert f"≈ {after}" in page.partition("Where the time goes")[2].partition("Now")[2]  # the bar


def assert_rows_add_up_as_printed(result: Result) -> None:
    """Of what a reader sees, the step minus the saving is the step after it, to the last digit; the headline's step and
    total, too. So does an assistant.
    """
    combined = result.combined
    if combined is None or not result.plan:
        return
    before = plain(plan_numbers.step_before(result.plan[0], result))
    typical = plain(quantities.ms_of_us(result.step.typical_us))
    assert abs(milliseconds(before) - milliseconds(typical)) <= 1.001 * (rounding(before) + rounding(typical))
    saved, left = plain(plan_numbers.saved_together(result)), plain(plan_numbers.step_after(result))
    assert milliseconds(before) - milliseconds(saved) == pytest.approx(milliseconds(left), abs=1e-6)
    answer = analyzed(result)
    assert answer.step_ms == pytest.approx(milliseconds(before))
    for row, told in zip(result.plan, answer.plan, strict=True):
        numbers = plan_numbers.row_numbers(row, result)
        saves, after = plain(numbers.saves), plain(numbers.step_after)
        assert milliseconds(before) - milliseconds(saves) == pytest.approx(milliseconds(after), abs=1e-6)
        assert (numbers.alone == numbers.saves) or abs(row.alone_us - row.saving_us) / 1e3 > 1e-3 * rounding(saves)
        assert (told.saves_ms, told.step_after_ms) == pytest.approx((milliseconds(saves), milliseconds(after)))
        before = after
    assert before == left


def assert_agrees(result: Result, html: str) -> None:
    assert_adds_up(result)
    assert_printed(result, html)
    assert_rows_add_up_as_printed(result)


def test_a_small_row_of_a_large_plan_keeps_its_digits() -> None:
    """Not 1,053 -> 80 -> 50, which "saves 20"."""
    rich = sample.rich()
    rows = [
        replace(row, saving_us=saving_us, low_us=0.0, high_us=saving_us, alone_us=alone_us, step_us_after=after_us)
        for row, saving_us, alone_us, after_us in zip(
            rich.plan, (976_213, 24_185), (976_213, 32_558), (76_837, 52_652), strict=False
        )
    ]
    assert rich.combined is not None
    combined = replace(rich.combined, saving_us=1_000_398, step_us_after=52_652)
    result = replace(rich, plan=rows, combined=combined)
    shown = [plan_numbers.row_numbers(row, result) for row in rows]
    assert [plain(" ".join((one.saves, one.alone, one.step_after))) for one in shown] == [
        "976 ms 976 ms 77 ms",
        "24 ms 33 ms 53 ms",
    ]
    assert plain(plan_numbers.saved_together(result)).startswith("1,000 ms")


@over(GENERATED, REAL)
def test_of_every_trace(trace: AnalyzedTrace) -> None:
    assert_agrees(trace.result, trace.page)


def test_some_documents_have_a_plan(example: GetExample) -> None:
    """So the tests above look at something."""
    plans = [example(scenario).result.plan for scenario in ("slow_loader", "five_faults")]
    assert [len(plan) > rows for plan, rows in zip(plans, (0, 2), strict=True)] == [True, True]


@pytest.mark.parametrize("scale", [0.001, 0.01, 0.1, 1.0, 10.0, 30.0, 1000.0])
def test_steps_of_every_length(scale: float) -> None:
    """From 0.4 ms to 412 s."""
    rich = sample.rich()
    rows = [
        replace(
            row,
            saving_us=row.saving_us * scale,
            alone_us=row.alone_us * scale,
            low_us=row.low_us * scale,
            high_us=row.high_us * scale,
            step_us_after=row.step_us_after * scale,
        )
        for row in rich.plan
    ]
    assert rich.combined is not None
    combined = replace(
        rich.combined,
        saving_us=rich.combined.saving_us * scale,
        step_us_after=rich.combined.step_us_after * scale,
        low_us=sum(row.low_us for row in rows),
        high_us=sum(row.high_us for row in rows),
        breakdown_after=[],
    )
    parts = [replace(part, us_per_step=part.us_per_step * scale) for part in rich.breakdown]
    step = replace(rich.step, typical_us=sample.STEP_US * scale)
    scaled = replace(rich, plan=rows, combined=combined, breakdown=parts, step=step)
    assert_agrees(scaled, render_html(scaled, static=True))
