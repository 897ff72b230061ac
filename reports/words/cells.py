"""The values of tables as text, by the type of their column."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from traceopt.reports.words import names
from traceopt.reports.words.safe_text import yes_no
from traceopt.result import quantities
from traceopt.result.columns import ValueType

HASH_DIGITS = 12

# Numbers are under headings that say the unit.
_TEXT_OF: Mapping[ValueType, Callable[[Any], str]] = {
    "ms": quantities.ms_number,
    "us": quantities.measured,
    "seconds": quantities.seconds_number,
    "share": quantities.percent,
    "count": quantities.count,
    "rate": quantities.rate_number,
    "MB": quantities.megabytes_number,
    "KiB": lambda value: quantities.measured(value / 1024),
    "MiB": quantities.mebibytes_number,
    "place": lambda place: names.short_path(names.where(place)),
    "hash": lambda digits: digits[:HASH_DIGITS],
    "yes_no": yes_no,
}


def text_of(value: Any, type_: ValueType) -> str:
    """`value` in a column of this type; "" if it is not known."""
    return "" if value is None else _TEXT_OF.get(type_, str)(value)
