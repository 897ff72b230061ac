"""Tables that are read from the pages of a SQLite file: the same values as SQLite gives, whatever the file holds."""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from traceopt.analyzer.nsight.database import Database, opened
from traceopt.analyzer.nsight.table_pages import TablePages, UnusualTableError
from traceopt.errors import InputError

COLUMNS = ("a", "b", "c")
MARK = b", op_id = "
EDGES = [0, 1, -1, 2, 127, 128, -128, -129, 2**15, -(2**23), 2**31 - 1, 2**47, -(2**47) - 1, 2**63 - 1, -(2**63)]


def written(path: Path, rows: Sequence[tuple[Any, ...]], *statements: str, setup: str = "") -> Path:
    with sqlite3.connect(path) as connection:
        connection.executescript(setup + "CREATE TABLE t (a INTEGER NOT NULL, b INTEGER, text TEXT, c INTEGER)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
        for statement in statements:
            connection.execute(statement)
    connection.close()
    return path


def both(path: Path, columns: Sequence[str] = COLUMNS) -> tuple[list[Any], list[Any]]:
    """The rows as read, and as SQLite gives them; sorted."""
    with opened(str(path), "file") as database:
        found = []
        for numbers, texts in database.numbers_and_text("t", columns, "text", MARK):
            named = [None if place < 0 else texts.distinct[place] for place in texts.index.tolist()]
            found += list(zip(*numbers.tolist(), named, strict=True))
        plain = database.numbers("t", columns)
    assert sorted(zip(*(plain[column].tolist() for column in columns), strict=True)) == sorted(r[:-1] for r in found)
    connection = sqlite3.connect(path)
    expected = connection.execute(f"SELECT {', '.join(columns)}, text FROM t").fetchall()  # noqa: S608
    connection.close()
    cleaned = [
        (*(-1 if v is None else v for v in row), None if text is None else text.encode()) for *row, text in expected
    ]
    return sorted(found, key=repr), sorted(cleaned, key=repr)


def rows_of(count: int) -> list[tuple[Any, ...]]:
    random = np.random.default_rng(5)
    bits = random.integers(0, 63, count).tolist()
    values = [int(random.integers(-(2**bit), 2**bit)) for bit in bits]
    texts = [None, "", "aten::mm", "step 12", "x" * 300, "Füllwörter, op_id = ", "8", "exactly8", "sixteen letters!"]
    return [(v, EDGES[i % len(EDGES)], texts[i % len(texts)], i % 3 or None) for i, v in enumerate(values)]


def pages_only(path: Path, columns: Sequence[str] = COLUMNS) -> None:
    """Raises if SQLite has to read the file."""
    with opened(str(path), "file") as database:
        root, places = database._plain["t"]
        with path.open("rb") as stream:
            list(TablePages(stream).read(root, [places[column] for column in columns], places["text"]))


@pytest.mark.parametrize("page_bytes", [512, 4096, 65_536])
def test_values_are_those_of_sqlite(page_bytes: int, tmp_path: Path) -> None:
    path = written(tmp_path / "t.sqlite", rows_of(5_000), setup=f"PRAGMA page_size = {page_bytes};")
    pages_only(path)
    found, expected = both(path)
    assert found == expected


def test_records_in_several_pages_and_columns_of_later_versions(tmp_path: Path) -> None:
    rows = [*rows_of(500), *((i, i, "long" * (2_000 + i), i) for i in range(20))]
    path = written(tmp_path / "t.sqlite", rows, "ALTER TABLE t ADD COLUMN d INTEGER", "DELETE FROM t WHERE a % 7 = 0")
    pages_only(path)
    found, expected = both(path, (*COLUMNS, "d"))
    assert found == expected
    assert max(len(row[-1] or b"") for row in found) > 8_000


UNUSUAL = {
    "default": "ALTER TABLE t ADD COLUMN d INTEGER NOT NULL DEFAULT 7",
    "generated": "ALTER TABLE t ADD COLUMN d INTEGER AS (a + 1)",
    "key": "CREATE TABLE u (d INTEGER PRIMARY KEY, a, b, text, c); INSERT INTO u SELECT a, a, b, text, c FROM t; "
    "DROP TABLE t; ALTER TABLE u RENAME TO t",
    "without rowid": "CREATE TABLE u (d INTEGER, a, b, text, c, PRIMARY KEY (a)) WITHOUT ROWID; "
    "INSERT INTO u SELECT 1, a, b, text, c FROM t; DROP TABLE t; ALTER TABLE u RENAME TO t",
}


@pytest.mark.parametrize("form", sorted(UNUSUAL))
def test_unusual_tables_are_read_by_sqlite(form: str, tmp_path: Path) -> None:
    path = written(tmp_path / "t.sqlite", [(i, i, "x", i) for i in range(1_000)], *UNUSUAL[form].split("; "))
    found, expected = both(path, COLUMNS if form == "generated" else (*COLUMNS, "d"))
    assert found == expected
    assert len(found) == 1_000


def test_utf16_is_read_by_sqlite(tmp_path: Path) -> None:
    path = written(tmp_path / "t.sqlite", rows_of(100), setup="PRAGMA encoding = 'UTF-16le';")
    with pytest.raises(UnusualTableError):
        pages_only(path)
    found, expected = both(path)
    assert found == expected


def test_no_number_is_converted_as_sqlite_does_and_reading_goes_on(tmp_path: Path) -> None:
    rows = [(i, i, f"name {i % 5}", i) for i in range(300_000)]
    rows[-2:] = [(1, 2.5, b"blob", b"9"), (3, "4x", "end", None)]
    path = written(tmp_path / "t.sqlite", rows)
    with opened(str(path), "file") as database:
        found = database.numbers("t", COLUMNS)
    assert found["a"].tolist() == [row[0] for row in rows]
    assert found["b"].tolist()[-3:] == [299_997, 2, 4]
    assert found["c"].tolist()[-3:] == [299_997, 9, -1]


def test_only_a_number_behind_the_mark_is_cut_off(tmp_path: Path) -> None:
    cases = {"aten::mm, op_id = 12": "aten::mm, op_id = ", ", op_id = 7": ", op_id = ", "step 12": "step 12"}
    cases |= {"x, op_id = 1, seq = 2": "x, op_id = 1, seq = 2", "2024": "2024", "a, op_id = ": "a, op_id = "}
    for encoding in ("UTF-8", "UTF-16le"):  # read from pages, and by SQLite
        path = written(
            tmp_path / f"{encoding}.sqlite",
            [(i, 0, text, 0) for i, text in enumerate(cases)],
            setup=f"PRAGMA encoding = '{encoding}';",
        )
        with opened(str(path), "file") as database:
            ((_, texts),) = database.numbers_and_text("t", COLUMNS, "text", MARK)
        assert [texts.distinct[place].decode() for place in texts.index.tolist()] == list(cases.values())


def test_bounds_keep_some_rows(tmp_path: Path) -> None:
    path = written(tmp_path / "t.sqlite", [(i, i % 10, f"n{i}", -i) for i in range(2_000)])
    with opened(str(path), "file") as database:
        assert database.numbers("t", ["a"], {"b": (3, 4)})["a"].tolist() == [
            i for i in range(2_000) if i % 10 in (3, 4)
        ]
        pieces = list(database.numbers_and_text("t", ["a"], "text", b"", {"c": (-3, -2)}))
    assert [texts.distinct[place] for _, texts in pieces for place in texts.index.tolist()] == [b"n2", b"n3"]


def damaged(data: bytes, random: np.random.Generator, *, cut: bool) -> bytes:
    changed = bytearray(data)
    for at in random.integers(100, len(data), 3).tolist():
        changed[at] = int(random.integers(256))
    return bytes(changed[: int(random.integers(100, len(data)))] if cut else changed)


def test_damaged_pages_are_unusual_or_give_rows(tmp_path: Path) -> None:
    data = written(tmp_path / "t.sqlite", rows_of(3_000), setup="PRAGMA page_size = 1024;").read_bytes()
    random = np.random.default_rng(17)
    outcomes = set()
    for nth in range(200):
        try:
            pages = TablePages(io.BytesIO(damaged(data, random, cut=nth % 4 == 0)))
            rows = sum(piece.shape[1] for piece, _ in pages.read(2, [0, 1, 3], 2, MARK))
        except UnusualTableError:
            outcomes.add("unusual")
        else:
            assert rows < 100_000
            outcomes.add("rows")
    assert outcomes == {"unusual", "rows"}


def test_pages_that_lead_in_a_circle_are_unusual(tmp_path: Path) -> None:
    data = bytearray(written(tmp_path / "t.sqlite", rows_of(3_000)).read_bytes())
    root = data[4096:8192]
    assert root[0] == 5
    first_cell = int.from_bytes(root[12:14], "big")
    data[4096 + first_cell : 4096 + first_cell + 4] = (2).to_bytes(4, "big")
    with pytest.raises(UnusualTableError):
        list(TablePages(io.BytesIO(data)).read(2, [0]))


def test_rows_that_overlap_are_unusual(tmp_path: Path) -> None:
    data = bytearray(written(tmp_path / "t.sqlite", [(i, i, "text", i) for i in range(20)]).read_bytes())
    page = memoryview(data)[4096:8192]
    assert page[0] == 13
    page[3:5] = (1_500).to_bytes(2, "big")
    page[8:3_008] = bytes(page[8:10]) * 1_500  # all rows are the first one
    with pytest.raises(UnusualTableError):
        list(TablePages(io.BytesIO(data)).read(2, [0]))


def test_a_table_without_rows_and_one_that_is_missing(tmp_path: Path) -> None:
    path = written(tmp_path / "t.sqlite", [])
    with opened(str(path), "file") as database:
        assert isinstance(database, Database)
        assert database.numbers("t", COLUMNS)["a"].tolist() == []
        with pytest.raises(InputError):
            database.numbers("none", COLUMNS)
