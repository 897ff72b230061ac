"""What a table shows: its columns, declared once. HTML, Markdown and the terminal follow from that."""

from __future__ import annotations

from typing import Literal, get_args

from msgspec import Struct

NumberType = Literal[
    "ms",  # from microseconds, as all times
    "ms_change",  # with its sign
    "time",  # with its unit
    "us",
    "seconds",
    "share",  # in per cent
    "count",
    "rate",
    "MB",  # from bytes, as all sizes
    "KiB",
    "MiB",
    "number",  # a number that is text already
]
ValueType = Literal[
    NumberType,
    "name",  # code: an operator, a file
    "kernel",  # its short name, which opens the full one
    "place",  # a line of code
    "hash",  # its first digits
    "yes_no",
    "word",
    "text",  # several words, which may break
    "special",  # the page has more than this text, which the template of the table writes
]
CODE_TYPES = frozenset({"name", "kernel", "place", "hash"})
NUMBER_TYPES = frozenset(get_args(NumberType))


class Column(Struct, frozen=True):
    """A column, which is left out if no row has a value for it.

    `label` and `about` have placeholders for words of the result: {per_step}, {step}, {device}, {communication},
    {matrix_units}.
    """

    key: str  # the field of the row, or a value derived from the row
    label: str  # the heading
    type: ValueType
    about: str = ""  # a sentence for the caption, which the heading repeats as its tooltip
    beside: str = ""  # key of a word beside the value
    warning: str = ""  # key of a warning before the value
    instead_of: str = ""  # key of a column; this one is left out if that one is shown
    usual: float | None = None  # a value that says nothing: without any other, the column is left out, too
    bar: bool = False  # a small bar compares the value with the largest
    on_phone: bool = True

    @property
    def is_number(self) -> bool:
        return self.type in NUMBER_TYPES


class Table(Struct, frozen=True):
    """A table of the report: its anchor, its title and its columns."""

    name: str
    title: str
    columns: tuple[Column, ...]
    about: str = ""  # the first sentence of the caption
    noun: str = "rows"
    most: int = 200  # rows shown
    order: str = "longest"  # what the first rows are; empty: they come in no order
    filter: str = ""  # of the box above the table; empty: no box
    narrow: bool = False  # the first column has short names
    sortable: bool = True
    linked: bool = False  # each row has an anchor
    closed: bool = False  # its section is closed at first
