"""What the page needs besides the document: the order of sections, names that break, the choices of filters."""

from __future__ import annotations

import re
from collections.abc import Sequence

from markupsafe import Markup, escape

from traceopt.reports.words import names
from traceopt.reports.words.fixes.fix_cards import Card
from traceopt.result.document import Result
from traceopt.result.tables.columns import Column

FEWEST_CARDS, FEWEST_ROWS = 10, 5  # with fewer, a filter only takes room
MOST_CHOICES = 0.5  # of the number of cards: with more, a choice is hardly more than one card
PRINTED_ROWS = 6  # of a table, as the style sheet for print has it
_PART_END = re.compile(r"(?:(?<=::)|(?<=[/_<,(]))(?=[A-Za-z0-9])")
_NAME_PART = re.compile(r"(?<=[_/])(?=\w\w)")  # not "GB/s"


def convolutions_take_longer(document: Result) -> bool:
    """Whether convolutions and attention take longer than matrix multiplications, so their table comes first."""
    shaped, matmuls = (sum(row.us_per_step for row in rows) for rows in (document.shaped_ops, document.gemms))
    return shaped > matmuls


def copies_take_longest(document: Result) -> bool:
    """Whether no part of the step takes longer than copies, so their section is open."""
    longest = max(document.breakdown, key=lambda part: part.us_per_step, default=None)
    return longest is not None and longest.name == "copies"


def look(column: Column) -> Markup:
    """The class attribute of the cells of a column. One class needs no quotes, and there are thousands of cells."""
    classes = {
        "num": column.is_number,
        "wrap-cell": column.type == "text" or not column.on_phone,
        "only-wide": not column.on_phone,
    }
    chosen = [name for name, is_chosen in classes.items() if is_chosen]
    quote = '"' if len(chosen) > 1 else ""
    return Markup(" class=" + quote + " ".join(chosen) + quote if chosen else "")  # noqa: S704 (our own names)


def breakable(text: str) -> Markup:
    """A title whose names and paths, such as scaled_dot_product_attention and layers/unquant.py:136, break after an
    underscore or a slash on a narrow screen.
    """
    return Markup("<wbr>").join(escape(part) for part in _NAME_PART.split(text))


def breakable_name(name: str) -> Markup:
    """The name of a kernel, operator or file, which breaks in a narrow cell where one of its parts ends."""
    return Markup("<wbr>").join(escape(part) for part in _PART_END.split(name))


def with_whole_line_number(place: str) -> Markup:
    """ "train.py:128", whose number does not break at the end of a line."""
    path, function = names.parted(place)
    file, colon, line = path.rpartition(":")
    shown = breakable_name(path) if not colon else Markup("{}<i>:{}</i>").format(breakable_name(file), line)
    return shown + breakable_name(function)


def fix_filters(cards: Sequence[Card]) -> list[tuple[str, str, list[str]]]:
    """Field, label and choices of each filter of the fixes; those that split the list in parts of several."""
    if len(cards) < FEWEST_CARDS:
        return []
    findings = [card.finding for card in cards]
    choices = [
        ("family", "Family", {finding.family for finding in findings}),
        ("effort", "Effort", {str(finding.effort) for finding in findings}),
        ("risk", "Risk", {str(finding.risk) for finding in findings}),
    ]
    return [
        (name, label, sorted(values - {""}))
        for name, label, values in choices
        if 1 < len(values - {""}) <= MOST_CHOICES * len(cards)
    ]
