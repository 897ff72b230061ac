"""A number in a sentence is the number in the table: one spelling for each quantity of a document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from msgspec import Struct
from support.traces import GENERATED, READABLE, TWINS, AnalyzedTrace, over

import traceopt
from traceopt import comparison, document, reports, rules
from traceopt.result.document import Result
from traceopt.result.field_notes import field_notes
from traceopt.result.finding import Evidence
from traceopt.result.words import quantities
from traceopt.rules.registry import builtin_rules

PIPELINE = Path(__file__).parents[1] / "fixtures" / "traces" / "gloo" / "pipeline"

# What a unit measures, and its size in the unit of the document: microseconds, shares, bytes.
UNITS: dict[str, tuple[str, float]] = {
    "s": ("us", 1e6),
    "ms": ("us", 1e3),
    "µs": ("us", 1.0),
    "us": ("us", 1.0),
    "%": ("share", 0.01),
    "GiB": ("bytes", 2.0**30),
    "MiB": ("bytes", 2.0**20),
    "KiB": ("bytes", 2.0**10),
    "GB": ("bytes", 1e9),
    "MB": ("bytes", 1e6),
    "kB": ("bytes", 1e3),
    "GB/s": ("GB/s", 1.0),
    "TFLOP/s": ("TFLOP/s", 1.0),
}
NUMBER = re.compile(
    r"(?<![\w.,-])(?P<text>(?P<estimate>≈ ?)?(?P<below><)?(?P<number>\d[\d,]*(?:\.\d+)?)(?: ?(?P<percent>%)"
    rf"| (?P<unit>{'|'.join(sorted(UNITS.keys() - {'%'}, key=len, reverse=True))})(?![\w/])))"
)
BIG = ("timeline", "findings", "checks")  # parts of a document that are no tables of numbers
LEAST_10_PERCENT = 0.0995  # less is spelled "9.9%", so "10%" is another quantity; none is formatted by hand (below)
LEAST_100_PERCENT = 1 - 5e-7  # less is spelled "99.9%" or ">99.9%"
LIMITS = {rule.code: {limit.default for limit in rule.thresholds()} for rule in builtin_rules()}
LIMITS["verdict"] = {0.03}  # of "No fix above 3% found."


class Number(Struct, frozen=True):
    """A number with a unit in a sentence: "187.4 ms" is 187,400 "us". `rounding` is half a unit of its last digit.

    0 and "<0.1%" are compared with nothing: too many quantities are near.
    """

    text: str
    kind: str
    unit: str
    value: float
    rounding: float
    estimated: bool


class Printed(Struct, frozen=True):
    """A quantity of a table: what it measures, its value in the unit of the document, and its text in reports."""

    kind: str
    value: float
    text: str


class Sentence(Struct, frozen=True):
    """`code` is the rule's, or "verdict". A reader compares it with the finding's `evidence` and with the tables."""

    code: str
    field: str
    text: str
    evidence: list[Printed]
    tables: list[Printed]

    def comparable(self, number: Number) -> Iterator[Printed]:
        """Rows that may be the same quantity, by their value. Times of single calls (µs) and moved bytes (MB) are
        separate.
        """

        def near(rows: list[Printed]) -> list[Printed]:
            most = number.rounding * (1 + 1e-9)
            return [row for row in rows if row.kind == number.kind and abs(row.value - number.value) <= most]

        special = number.unit if number.unit in ("µs", "MB") else None
        tables = [
            row
            for row in near(self.tables)
            if next((unit for unit in ("µs", "MB") if unit in row.text), None) == special
        ]
        for row in [*near(self.evidence), *tables]:
            if row.text.startswith("≈") is number.estimated and row.text[0] != "<":
                yield row


def numbers(text: str) -> Iterator[Number]:
    for found in NUMBER.finditer(text):
        unit = found["percent"] or found["unit"]
        kind, size = UNITS[unit]
        decimals = len(found["number"].partition(".")[2])
        value = float(found["number"].replace(",", "")) * size
        rounding = 0.5 * 10.0**-decimals * size if value and not found["below"] else 0.0
        yield Number(found["text"], kind, unit, value, rounding, found["estimate"] is not None)


def spelled(number: Number) -> set[str]:
    """How the formatter spells a quantity of this kind and unit."""
    if number.unit == "%":
        return {quantities.percent(number.value), "<0.1%"}
    if number.kind == "us":
        if number.estimated:
            return {quantities.estimate(number.value).replace(quantities.NO_BREAK_SPACE, " ")}
        per_call = {quantities.microseconds(number.value * 1e3)} if number.unit == "µs" else set()
        return {quantities.ms(number.value * 1e3), *per_call}
    if number.kind == "bytes":
        moved = {quantities.megabytes(number.value)} if number.unit == "MB" else set()
        return {quantities.size(number.value), *moved}
    return {quantities.per_second(number.value, number.unit.removesuffix("/s"))}


def sentences(document: Result) -> Iterator[Sentence]:
    """Every sentence that traceopt writes about a trace."""
    tables = [row for name in document.__struct_fields__ if name not in BIG for row in printed(getattr(document, name))]
    yield Sentence("verdict", "verdict", document.verdict, [], tables)
    for note in document.quality.notes:
        yield Sentence(note.code, "note", note.text, [], tables)
    for finding in document.findings:
        evidence = [*printed(finding.evidence), *printed(finding.saving)]
        yield Sentence(finding.code, "title", finding.title, evidence, tables)
        yield Sentence(finding.code, "why", finding.why, evidence, tables)
        yield Sentence(finding.code, "fix", finding.fix.text, evidence, tables)
        if finding.saving is not None:
            yield Sentence(finding.code, "basis", finding.saving.basis, evidence, tables)
        for row in finding.evidence:
            yield Sentence(finding.code, "detail", row.detail or "", evidence, tables)
    for check in document.checks:
        evidence = [row for one in document.findings if one.code == check.code for row in printed(one.evidence)]
        yield Sentence(check.code, "reason", check.reason, evidence, tables)


def printed(part: Any) -> Iterator[Printed]:
    """Every quantity in a part of a document, by the units that its fields declare."""
    if isinstance(part, list):
        for item in part:
            yield from printed(item)
    elif isinstance(part, Struct):
        for name, note in units_of(type(part)).items():
            value = getattr(part, name)
            if isinstance(value, (list, Struct)):
                yield from printed(value)
            elif note.unit is not None and isinstance(value, (int, float)):
                yield Printed(note.unit, value, text_of(name, note.unit, value))


units_of = cache(field_notes)


def text_of(name: str, unit: str, value: float) -> str:
    """A quantity as reports print it: a field's unit says how, but for estimates, calls and moved bytes."""
    if unit == "share":
        text = quantities.percent(value)
    elif name in ("low_us", "est_us", "high_us"):
        text = quantities.estimate(value)
    elif name == "mean_us":
        text = f"{quantities.measured(value)} µs"
    elif unit == "us":
        text = quantities.ms_of_us(value)
    elif unit == "bytes":
        text = quantities.megabytes(value) if name == "bytes_per_step" else quantities.size_text(value)
    elif unit in ("GB/s", "TFLOP/s"):
        text = f"{quantities.rate_number(value)} {unit}"
    else:
        text = quantities.count(value)
    return text.replace(quantities.NO_BREAK_SPACE, " ")


def disagreements(texts: Iterable[Sentence]) -> list[str]:
    """Numbers that the formatter spells differently, and numbers that a table next to them spells differently."""
    found = []
    for sentence in texts:
        where = f"{sentence.code} {sentence.field}"
        for number in numbers(sentence.text):
            exact = any(abs(number.value - limit) < 1e-9 for limit in LIMITS.get(sentence.code, ()) if _real(limit))
            if number.text not in spelled(number) and not exact:
                found.append(f"{where}: {number.text!r} is spelled {spelled(number)}: {sentence.text}")
            near = {
                row.text
                for row in sentence.comparable(number)
                if not (number.text == "10%" and row.value < LEAST_10_PERCENT)
                and not (number.text == "100%" and row.value < LEAST_100_PERCENT)
            }
            if near and number.text not in near and not exact:
                found.append(f"{where}: {number.text!r} is {near} in a table: {sentence.text}")
    return found


def _real(limit: Any) -> bool:
    return isinstance(limit, (int, float)) and not isinstance(limit, bool)


@over(GENERATED, TWINS, READABLE)
def test_every_number_is_that_of_a_table_and_no_part_exceeds_its_whole(trace: AnalyzedTrace) -> None:
    found = [*sentences(trace.result)]
    assert disagreements(found) == []
    assert [sentence.text for sentence in found if _exceeds(sentence.text)] == []


@pytest.mark.parametrize("text", ["Saves take 140.8 ms of each 114.8 ms step.", "Matmuls take 279% of the step."])
def test_a_part_that_exceeds_its_whole_is_found(text: str) -> None:
    assert _exceeds(text)


def _exceeds(text: str) -> bool:
    """Whether a share is above 100%, or a time above the one that it is said to be of."""
    pairs = [(part, whole) for part, whole in pairwise(numbers(text)) if f"{part.text} of each {whole.text}" in text]
    over_100 = any(number.kind == "share" and number.value > 1 for number in numbers(text))
    return over_100 or any(part.kind == whole.kind and part.value > whole.value for part, whole in pairs)


@pytest.mark.parametrize(
    "sentence",
    [
        "Nothing happens for 95 µs.",  # a time in another unit
        "Nothing happens for 95.0 µs.",  # well spelled for a single call, but the table has it in ms
        "Nothing happens for 0.0950 ms.",  # a digit too many
        "Nothing happens for 0.1 ms.",  # a digit too few
        "Nothing happens for 1.0 ms.",  # 1.05 ms in the table, which is rounded to 1.1 ms
        "It takes 1% of the step.",  # a digit too few
        "It takes 42.0% of the step.",  # a digit too many
        "It holds 2.1 GB.",  # not the unit of memory
        "It holds 500.0 MiB.",  # not the unit of so much memory
        "It copies at 10 GB/s.",
        "It runs at 312.0 TFLOP/s.",
        "It saves ≈ 123 ms.",  # three digits in an estimate
    ],
)
def test_a_wrong_spelling_is_found(sentence: str) -> None:
    assert disagreements([_next_to_two_rows(sentence)])


@pytest.mark.parametrize(
    "sentence",
    [
        "Nothing happens for 0.095 ms, 1.1 ms and 1,234.5 ms.",
        "A kernel takes 2.5 µs.",
        "It takes 1.0%, 42%, <0.1% and 0% of the step.",
        "It holds 2.1 GiB and 5.0 MiB, and copies 33.6 MB at 10.0 GB/s.",
        "It runs at 312 TFLOP/s and saves ≈ 120 ms.",
        "An NVIDIA A100-SXM4-80GB ran shapes of 16x16 in 12 steps.",  # no quantities
    ],
)
def test_a_right_spelling_is_accepted(sentence: str) -> None:
    assert disagreements([_next_to_two_rows(sentence)]) == []


@pytest.mark.parametrize("package", [rules, reports, document, comparison])
def test_no_percentage_is_formatted_by_hand(package: ModuleType) -> None:
    """A share of 0.4 % would read "0%", which is near too many others to be found above."""
    by_hand = re.compile(r"\{[^{}]*:[^{}]*%\}")
    files = list(Path(str(package.__file__)).parent.rglob("*.py"))
    assert files
    assert [str(file) for file in files if by_hand.search(file.read_text(encoding="utf-8"))] == []


@over(GENERATED, READABLE)
def test_a_part_never_exceeds_its_whole(trace: AnalyzedTrace) -> None:
    """Evidence of the step and what is inside it, exposed communication and all of it."""
    result = trace.result
    whole_us = result.step.typical_us or sum(part.us_per_step for part in result.breakdown)
    larger = []
    for finding in result.findings:
        around_us = whole_us
        for row in finding.evidence:
            us = row.us_per_step or 0.0
            if not row.inside:
                around_us = us
            if us > 1.001 * (around_us if row.inside else whole_us) and finding.code != "EF002":  # single steps
                larger.append((finding.code, row))
    assert larger == []
    communication = result.communication
    assert (communication.exposed_us_per_step or 0.0) <= (communication.us_per_step or 0.0)


def test_a_wait_for_a_collective_is_a_part_of_it_on_a_cpu() -> None:
    communication = traceopt.analyze(str(PIPELINE)).communication
    assert 0 < (communication.exposed_us_per_step or 0.0) <= (communication.us_per_step or 0.0)


def _next_to_two_rows(text: str) -> Sentence:
    rows = [Evidence("a short gap", 95.0), Evidence("a longer gap", 1050.0)]
    return Sentence("DL001", "why", text, list(printed(rows)), [])
