"""What tables and filters need besides the document: cells without a value, the depth of modules, choices."""

from __future__ import annotations

import re
from collections.abc import Sequence

from markupsafe import Markup, escape
from msgspec import Struct

from traceopt.reports.words.fixes.fix_cards import Card
from traceopt.result.document import Result
from traceopt.result.quantities import NOT_RECORDED
from traceopt.result.rows import ModuleRow

FEWEST_CARDS = 4  # with fewer, a filter only takes room
PRINTED_ROWS = 6  # of a table, as the style sheet for print has it
_UNKNOWN = (NOT_RECORDED, "unknown")
_PART_END = re.compile(r"(?:(?<=::)|(?<=[/_<,(]))(?=[A-Za-z0-9])")


class ShownModule(Struct, frozen=True):
    """A module and the number of modules around it."""

    module: ModuleRow
    depth: int


def convolutions_take_longer(document: Result) -> bool:
    """Whether convolutions and attention take longer than matrix multiplications, so their table comes first."""
    shaped, matmuls = (sum(row.us_per_step for row in rows) for rows in (document.shaped_ops, document.gemms))
    return shaped > matmuls


def cell(text: str) -> str:
    """A dash for what is not known, so that a column of numbers stays narrow."""
    return "–" if text in _UNKNOWN else text


def breakable(text: str) -> Markup:
    """A title whose names, such as scaled_dot_product_attention, break after an underscore on a narrow screen."""
    return Markup("_<wbr>").join(escape(part) for part in text.split("_"))


def breakable_name(name: str) -> Markup:
    """The name of a kernel, operator or file, which breaks in a narrow cell where one of its parts ends."""
    return Markup("<wbr>").join(escape(part) for part in _PART_END.split(name))


def with_whole_line_number(place: str) -> Markup:
    """ "train.py:128", whose number does not break at the end of a line."""
    file, colon, line = place.rpartition(":")
    return breakable_name(place) if not colon else Markup("{}<i>:{}</i>").format(breakable_name(file), line)


def module_rows(modules: Sequence[ModuleRow]) -> list[ShownModule]:
    """The tree as rows; callers come before callees."""
    shown: list[ShownModule] = []
    for module in modules:
        shown.append(ShownModule(module, 0 if module.parent < 0 else shown[module.parent].depth + 1))
    return shown


def fix_filters(cards: Sequence[Card]) -> list[tuple[str, str, list[str]]]:
    """Field, label and choices of each filter of the fixes; empty if there is little to choose from."""
    if len(cards) < FEWEST_CARDS:
        return []
    findings = [card.finding for card in cards]
    choices = [
        ("family", "Family", {finding.family for finding in findings}),
        ("effort", "Effort", {finding.effort for finding in findings}),
        ("risk", "Risk", {finding.risk for finding in findings}),
    ]
    return [(name, label, sorted(values - {""})) for name, label, values in choices if len(values - {""}) > 1]
