"""Tables with their values: which columns are shown, and how values are written in each format."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Struct

from traceopt.reports.html.table_rows import look
from traceopt.reports.text.markdown_escaping import columns_table
from traceopt.reports.words.tables import shown_table
from traceopt.result.finding import Location
from traceopt.result.tables.columns import NUMBER_TYPES, Column, Table


class Row(Struct, frozen=True):
    name: str
    us: float | None = None
    share: float | None = None
    other_share: float | None = None
    batch: int = 1
    location: Location | None = None
    word: str = ""


NAME, MS = Column("name", "Name", "name"), Column("us", "ms{per_step}", "ms", about="Of each {step}.", bar=True)
SHARE = Column("share", "Share", "share", beside="word")
INSTEAD = Column("other_share", "Other share", "share", instead_of="share")
BATCH = Column("batch", "Batch", "count", usual=1)
PLACE = Column("location", "Place", "place")
TABLE = Table("rows", "Rows", (NAME, MS, SHARE, INSTEAD, BATCH, PLACE), most=3, linked=True)
WORDS = {"per_step": " per step", "step": "step"}


def labels(*rows: Row) -> list[str]:
    return [column.label for column in shown_table(TABLE, rows, WORDS).columns]


@pytest.mark.parametrize(
    ("row", "shown"),
    [
        (Row("a"), ["Name"]),
        (Row("a", us=0.0), ["Name", "ms per step"]),
        (Row("a", share=0.5, other_share=0.4), ["Name", "Share"]),
        (Row("a", other_share=0.4), ["Name", "Other share"]),
        (Row("a", batch=2), ["Name", "Batch"]),
        (Row("a", location=Location("a.py", 3)), ["Name", "Place"]),
    ],
)
def test_a_column_is_shown_if_a_row_has_a_value(row: Row, shown: list[str]) -> None:
    assert labels(row) == shown
    assert labels(Row("b"), row) == shown


def test_a_value_that_is_not_known_is_no_text() -> None:
    first, second = shown_table(TABLE, [Row("a", us=1500.0), Row("b")], WORDS).rows
    assert [cell.text for cell in first.cells] == ["a", "1.5"]
    assert [cell.text for cell in second.cells] == ["b", ""]
    assert (first.cells[1].part, second.cells[1].part) == (1.0, None)
    assert (first.anchor, second.anchor) == ("rows-1", "rows-2")


def test_the_caption_has_what_is_cut_and_what_shown_columns_are_about() -> None:
    rows = [Row(str(number), us=1.0) for number in range(5)]
    shown = shown_table(TABLE, rows, WORDS, scope="Mean of 3 steps", captions=["", "Last."])
    assert shown.caption == "Mean of 3 steps. The 3 longest of 5 rows. Of each step. Last."
    assert len(shown.rows) == 3
    assert shown_table(TABLE, [Row("a")], WORDS).caption == ""


def test_derived_values_take_the_place_of_fields() -> None:
    shown = shown_table(TABLE, [Row("a")], WORDS, derived={"name": lambda row: f"<{row.name}>"})
    assert shown.rows[0].cells[0].text == "<a>"


@pytest.mark.parametrize(("units", "text"), [(False, "1.5"), (True, "1.5\u00a0ms")])
def test_a_time_has_its_unit_where_no_heading_says_it(units: bool, text: str) -> None:
    assert shown_table(TABLE, [Row("a", us=1500.0)], WORDS, units=units).rows[0].cells[1].text == text


def test_markdown_follows_from_the_types() -> None:
    table = columns_table(shown_table(TABLE, [Row("a|b", share=0.5, word="*compute*")], WORDS))
    assert table.splitlines() == ["| Name | Share |", "| :- | -: |", r"| `a\|b` | 50% (\*compute\*) |"]
    places = [Row("a", location=Location("a.py", 3)), Row("b")]
    assert columns_table(shown_table(TABLE, places, WORDS)).endswith("| `a` | `a.py:3` |\n| `b` | – |")
    assert columns_table(shown_table(TABLE, [], WORDS)) == ""


@pytest.mark.parametrize(
    ("column", "attribute"),
    [
        *((Column("x", "X", type_), " class=num") for type_ in sorted(NUMBER_TYPES)),
        (NAME, ""),
        (Column("x", "X", "text"), " class=wrap-cell"),
        (Column("x", "X", "place", on_phone=False), ' class="wrap-cell only-wide"'),
    ],
)
def test_the_type_decides_the_class_of_cells(column: Any, attribute: str) -> None:
    assert look(column) == attribute
