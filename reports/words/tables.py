"""Tables with their values as text: the columns for which a row has a value. All formats write these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from traceopt.reports.words import names
from traceopt.reports.words.safe_text import yes_no
from traceopt.result.tables.columns import Column, Table, ValueType
from traceopt.result.words import quantities

FULL_NAMES = 30  # kernels whose full name can be opened; the rest have the short one
HASH_DIGITS = 12
_UNKNOWN = (None, "")

_TEXT_OF: Mapping[ValueType, Callable[[Any], str]] = {
    "ms": quantities.ms_number,
    "us": quantities.measured,
    "seconds": quantities.seconds_number,
    "time": quantities.ms_of_us,
    "ms_change": quantities.signed_ms_number,
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
# Where no heading or caption says the unit.
_WITH_UNIT: Mapping[ValueType, Callable[[Any], str]] = {
    **_TEXT_OF,
    "ms": quantities.ms_of_us,
    "ms_change": quantities.signed_time,
}

Derived = Mapping[str, Callable[[Any], Any]]  # values that are no field of the row, by key


class Cell(Struct, frozen=True):
    """A value as text, "" if it is not known. `full`: what `text` shortens; `exact`: the number that it only bounds;
    `part`: the length of a bar, 0..1.
    """

    text: str
    full: str
    exact: str
    beside: str | None
    warning: str
    part: float | None


class ShownRow(Struct, frozen=True):
    """A row, and what it was made of. `depth`: its place in a tree."""

    cells: list[Cell]
    source: Any
    anchor: str
    depth: int


class ShownTable(Struct, frozen=True):
    """A table with its values. It has the first of `total` rows."""

    table: Table
    columns: list[Column]
    rows: list[ShownRow]
    caption: str
    total: int


def shown_table(
    table: Table,
    rows: Sequence[Any],
    words: Mapping[str, str] | None = None,
    *,
    derived: Derived | None = None,
    scope: str = "",
    captions: Iterable[str] = (),
    total: int | None = None,
    depths: Iterable[int] = repeat(0),
    units: bool = False,
) -> ShownTable:
    """The first rows of a table. `words` are those for which labels have placeholders. `scope` is what the rows cover,
    and `captions` are the last sentences of the caption. `units`: each time has its unit.
    """
    words, total = words or {}, len(rows) if total is None else total
    values = _Values(rows[: table.most], derived or {})
    columns = [
        replace(column, label=column.label.format_map(words), about=column.about.format_map(words))
        for column in _with_values(table.columns, values)
    ]
    text_of = _WITH_UNIT if units else _TEXT_OF
    cells = zip(*(_cells(column, values, text_of) for column in columns), strict=True)
    anchors = [f"{table.name}-{number}" if table.linked else "" for number in range(1, len(values.rows) + 1)]
    sentences = [
        table.about,
        f"{scope}." if scope else "",
        _cut(table, total),
        *(column.about for column in columns),
        *captions,
    ]
    return ShownTable(
        table,
        columns,
        [ShownRow(list(of_row), *rest) for of_row, *rest in zip(cells, values.rows, anchors, depths, strict=False)],
        " ".join(filter(None, sentences)),
        total,
    )


def _cut(table: Table, total: int) -> str:
    """ "The 200 longest of 1,418 kernels."; "" if all are shown."""
    if total <= table.most:
        return ""
    first = f"{table.most} {table.order}" if table.order else f"first {table.most}"
    return f"The {first} of {total:,} {table.noun}."


class _Values(Struct, frozen=True):
    """The values of rows by key: fields of the row, or derived from it."""

    rows: Sequence[Any]
    derived: Derived

    def of(self, key: str) -> list[Any]:
        derive = self.derived.get(key)
        return [getattr(row, key) if derive is None else derive(row) for row in self.rows]


def _with_values(columns: Sequence[Column], values: _Values) -> list[Column]:
    """The columns for which a row has a value."""
    shown: dict[str, Column] = {}
    for column in columns:
        nothing = _UNKNOWN if column.usual is None else (*_UNKNOWN, column.usual)
        if column.instead_of not in shown and any(value not in nothing for value in values.of(column.key)):
            shown[column.key] = column
    return list(shown.values())


def _cells(column: Column, values: _Values, text_of: Mapping[ValueType, Callable[[Any], str]]) -> list[Cell]:
    of_rows, as_text = values.of(column.key), text_of.get(column.type, str)
    texts = ["" if value is None else as_text(value) for value in of_rows]
    return [
        Cell(*parts)
        for parts in zip(
            texts,
            _full(column, of_rows, values.rows),
            _exact(column, of_rows, texts),
            values.of(column.beside) if column.beside else repeat(""),
            values.of(column.warning) if column.warning else repeat(""),
            _parts(of_rows) if column.bar else repeat(None),
            strict=False,
        )
    ]


def _full(column: Column, of_rows: Sequence[Any], rows: Sequence[Any]) -> Iterable[str]:
    """What the text shortens."""
    if column.type == "kernel":
        return [row.name if index < FULL_NAMES else "" for index, row in enumerate(rows)]
    if column.type == "place":
        return [names.where(place) for place in of_rows]
    return of_rows if column.type == "hash" else repeat("")


def _exact(column: Column, of_rows: Sequence[Any], texts: Sequence[str]) -> Iterable[str]:
    """The numbers of texts such as "<0.1%" and ">99.9%", in their unit."""
    if column.type != "share":
        return repeat("")
    return [f"{value * 100:.6g}" if text[:1] in ("<", ">") else "" for value, text in zip(of_rows, texts, strict=True)]


def _parts(of_rows: Sequence[float | None]) -> list[float | None]:
    """The values as parts of the largest."""
    largest = max(value or 0 for value in of_rows)
    return [round(value / largest, 2) if value is not None and largest else None for value in of_rows]
