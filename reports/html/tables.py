"""Tables of the page: the columns that have values, and each value as text. table.html.j2 writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

from markupsafe import Markup
from msgspec import Struct
from msgspec.structs import replace

from traceopt.reports.words import names
from traceopt.reports.words.cells import text_of
from traceopt.result.columns import Column, Table

FULL_NAMES = 30  # kernels whose full name can be opened; the rest have the short one
_UNKNOWN = (None, "")

Derived = Mapping[str, Callable[[Any], Any]]  # values that are no field of the row, by key


class Cell(Struct, frozen=True):
    """A value as text, "" if it is not known. `full`: what `text` shortens; `part`: the length of a bar, 0..1."""

    text: str
    full: str
    beside: str
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
) -> ShownTable:
    """The first rows of a table. `words` are those for which labels have placeholders. `scope` is what the rows cover,
    and `captions` are the last sentences of the caption.
    """
    words, total = words or {}, len(rows) if total is None else total
    values = _Values(rows[: table.most], derived or {})
    columns = [replace(one, label=one.label.format_map(words)) for one in _with_values(table.columns, values)]
    cells = zip(*(_cells(column, values) for column in columns), strict=True)
    anchors = [f"{table.name}-{number}" if table.linked else "" for number in range(1, len(values.rows) + 1)]
    sentences = [
        table.about,
        f"{scope}." if scope else "",
        _cut(table, total),
        *(column.about.format_map(words) for column in columns),
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
    return (
        f"The {table.most} longest of {total:,} {table.noun}."
        if table.by_time
        else (f"The first {table.most} of {total:,} {table.noun}.")
    )


def look(column: Column) -> Markup:
    """The class attribute of the cells of a column. One class needs no quotes, and there are thousands of cells."""
    classes = {
        "num": column.is_number,
        "wrap-cell": column.type == "text" or not column.on_phone,
        "only-wide": not column.on_phone,
        "screen": not column.on_paper,
    }
    chosen = [name for name, is_chosen in classes.items() if is_chosen]
    quote = '"' if len(chosen) > 1 else ""
    return Markup(" class=" + quote + " ".join(chosen) + quote if chosen else "")  # noqa: S704 (our own names)


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
        known = column.type == "special" or any(value not in nothing for value in values.of(column.key))
        if known and column.instead_of not in shown:
            shown[column.key] = column
    return list(shown.values())


def _cells(column: Column, values: _Values) -> list[Cell]:
    of_rows = [] if column.type == "special" else values.of(column.key)
    return [
        Cell(*parts)
        for parts in zip(
            [text_of(value, column.type) for value in of_rows] or repeat("", len(values.rows)),
            _full(column, of_rows, values.rows),
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


def _parts(of_rows: Sequence[float | None]) -> list[float | None]:
    """The values as parts of the largest."""
    largest = max(value or 0 for value in of_rows)
    return [round(value / largest, 2) if value is not None and largest else None for value in of_rows]
