"""Opens a SQLite file that may be hostile, and reads columns of its ordinary tables as arrays.

Tables in the plainest form are read from the pages of the file. On all others only SELECT statements run: no view,
trigger, virtual table or generated column is touched, and an authorizer refuses everything else. The work and the
number of rows are limited.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.nsight.table_pages import TablePages, Texts, UnusualTableError
from traceopt.analyzer.tables.schema import I8
from traceopt.errors import InputError, one_line

MAGIC = b"SQLite format 3\x00"
MOST_ROWS = 100_000_000  # of one table
MOST_TABLES = 2_000
LONGEST_TEXT = 16_384  # bytes of one text that are kept
_LONGEST_VALUE = 64 << 20  # bytes; SQLite refuses longer ones where Python can set the limit (3.11)
_LIMIT_LENGTH = 0  # SQLITE_LIMIT_LENGTH
_CHUNK = 2_000  # rows that are held as Python objects at a time
_INSTRUCTIONS = 1_000_000  # of SQLite between two checks of the work that was done
_FEWEST_CHECKS = 500
_BYTES_A_CHECK = 20_000  # of the file; reading a real one took a check per 1,500,000 bytes
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION})
_FUNCTIONS = frozenset({"count", "ifnull", "typeof"})
_ORDINARY = re.compile(r"\s*CREATE\s+TABLE\b", re.IGNORECASE)
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


class _Column(NamedTuple):
    """A row of `PRAGMA table_xinfo`."""

    place: Any
    name: Any
    type: Any
    not_null: Any
    default: Any
    key: Any
    hidden: Any

    @property
    def is_plain(self) -> bool:
        """Its values are in the records: it is no key, not generated, and has no default."""
        return isinstance(self.name, str) and self.default is None and self.key == 0 and self.hidden == 0


_Piece = tuple[npt.NDArray[np.int64], Texts | None]  # integer columns, shape (columns, rows), and the text column
Between = Mapping[str, tuple[int, int]]  # the first and the last value that a column may have in the rows that are read


class Database:
    """The ordinary tables of one file: `tables` maps a name to the columns that are no generated ones."""

    def __init__(self, connection: sqlite3.Connection, stream: BinaryIO, label: str) -> None:
        self._connection = connection
        self._stream = stream
        self._label = label
        self._plain: dict[str, tuple[int, dict[str, int]]] = {}  # first page, place of each column in a record
        self.tables: dict[str, frozenset[str]] = self._find_tables()

    def _find_tables(self) -> dict[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        query = "SELECT name, sql, rootpage FROM sqlite_master WHERE type = 'table' LIMIT ?"
        for name, sql, root in (map(_decoded, row) for row in self._rows(query, (MOST_TABLES,))):
            plain = isinstance(name, str) and _PLAIN_NAME.fullmatch(name) and not name.startswith("sqlite_")
            if plain and isinstance(sql, str) and _ORDINARY.match(sql):
                columns = [_Column(*map(_decoded, row)) for row in self._rows(f'PRAGMA table_xinfo("{name}")')]
                stored = [column.name for column in columns if column.hidden == 0 and isinstance(column.name, str)]
                found[name] = frozenset(filter(_PLAIN_NAME.fullmatch, stored))
                if isinstance(root, int) and all(column.is_plain for column in columns):
                    self._plain[name] = root, {one.name: place for place, one in enumerate(columns)}
        return found

    def has(self, table: str, *columns: str) -> bool:
        return frozenset(columns) <= self.tables.get(table, frozenset()) and table in self.tables

    def count(self, table: str) -> int:
        """Rows of a table; 0 if there is no such table."""
        if table not in self.tables:
            return 0
        (counted,) = next(self._rows(f'SELECT count(*) FROM "{table}"'))  # noqa: S608, names are checked
        return int(counted)

    def numbers(self, table: str, columns: Sequence[str], between: Between | None = None) -> dict[str, I8]:
        """Integer columns, each of shape (rows,); -1 for NULL, for a column that the table lacks, and for no number."""
        pieces = [piece for piece, _ in self._pieces(table, columns, None, b"", between or {})]
        found: dict[str, I8] = {}
        for place, column in enumerate(columns):
            found[column] = np.concatenate([np.empty(0, np.int64), *(piece[place] for piece in pieces)])
        return found

    def numbers_and_text(
        self, table: str, columns: Sequence[str], text: str, number_mark: bytes, between: Between | None = None
    ) -> Iterator[tuple[npt.NDArray[np.int64], Texts]]:
        """Integer columns, shape (columns, rows), and one text column, in pieces. Texts that differ only in a number
        behind `number_mark` at their end are one.
        """
        for piece, texts in self._pieces(table, columns, text, number_mark, between or {}):
            if texts is not None:
                yield piece, texts

    def _pieces(
        self, table: str, columns: Sequence[str], text: str | None, number_mark: bytes, between: Between
    ) -> Iterator[_Piece]:
        wanted = [*columns, *(column for column in between if column not in columns)]
        bounds = [(wanted.index(column), *limits) for column, limits in between.items()]
        rows = 0
        for piece, texts in self._all_rows(table, wanted, text, number_mark):
            rows += piece.shape[1]
            if rows > MOST_ROWS:
                raise InputError(f"{self._label}: its table {table} has more than {MOST_ROWS:,} rows")
            yield _within(piece, texts, bounds, len(columns)) if bounds else (piece, texts)

    def _all_rows(self, table: str, columns: Sequence[str], text: str | None, number_mark: bytes) -> Iterator[_Piece]:
        """The rows from the pages of the file, and what is unusual in them from SQLite."""
        asked = table, columns, text, number_mark
        if table not in self._plain:
            yield from self._from_queries(*asked)
            return
        root, places = self._plain[table]
        place_of_text = None if text is None else places.get(text)
        pages = None
        try:
            pages = TablePages(self._stream)
            yield from pages.read(root, [places.get(column, -1) for column in columns], place_of_text, number_mark)
        except UnusualTableError:
            last_row = pages.last_row if pages is not None else None
            yield from self._from_queries(*asked, "" if last_row is None else f"WHERE rowid > {last_row}")
        long_rows = pages.long_rows if pages is not None else []
        for first in range(0, len(long_rows), _CHUNK):
            listed = ",".join(str(row) for row in long_rows[first : first + _CHUNK])
            yield from self._from_queries(*asked, f"WHERE rowid IN ({listed})")

    def _from_queries(
        self, table: str, columns: Sequence[str], text: str | None, number_mark: bytes, where: str = ""
    ) -> Iterator[_Piece]:
        stored = [*(self._number(table, column) for column in columns), *([self._text(table, text)] if text else [])]
        query = f'SELECT {", ".join(stored)} FROM "{table}" {where}'  # noqa: S608, names are checked
        number = re.compile(b"(?<=" + re.escape(number_mark) + rb")[0-9]+\Z")
        for chunk in self._chunks(query):
            if text is None:
                flat = np.fromiter(chain.from_iterable(chunk), np.int64, len(chunk) * len(columns))
                yield np.ascontiguousarray(flat.reshape(-1, len(columns)).T), None
                continue
            *numbers, texts = zip(*chunk, strict=True)
            codes: dict[bytes, int] = {}
            cut = (one if one is None or not number_mark else number.sub(b"", one) for one in texts)
            index = [-1 if one is None else codes.setdefault(one, len(codes)) for one in cut]
            yield np.array(numbers, np.int64), Texts(list(codes), np.array(index, np.int64))

    def records(
        self, table: str, numbers: Sequence[str], texts: Sequence[str], most: int = 100_000
    ) -> list[dict[str, int | str | None]]:
        """The first rows of a small table, as mappings."""
        if table not in self.tables:
            return []
        stored = [self._number(table, n) for n in numbers] + [self._text(table, t) for t in texts]
        query = f'SELECT {", ".join(stored)} FROM "{table}" LIMIT {most}'  # noqa: S608
        names = [*numbers, *texts]
        rows = (map(_decoded, row) for chunk in self._chunks(query) for row in chunk)
        return [dict(zip(names, row, strict=True)) for row in rows]

    def strings(self, ids: Sequence[int]) -> Mapping[int, str]:
        """The texts of `StringIds` with these ids."""
        found: dict[int, str] = {}
        if not self.has("StringIds", "id", "value"):
            return found
        for first in range(0, len(ids), _CHUNK):
            listed = ",".join(str(int(one)) for one in ids[first : first + _CHUNK])
            query = f'SELECT id, {self._text("StringIds", "value")} FROM "StringIds" WHERE id IN ({listed})'  # noqa: S608
            for chunk in self._chunks(query):
                found.update((key, decoded(text)) for key, text in chunk if isinstance(key, int) and text is not None)
        return found

    def _number(self, table: str, column: str) -> str:
        return f'CAST(ifnull("{column}", -1) AS INTEGER)' if self.has(table, column) else "-1"

    def _text(self, table: str, column: str) -> str:
        if not self.has(table, column):
            return "NULL"
        return f"""CASE WHEN typeof("{column}") = 'text' THEN "{column}" END"""

    def _chunks(self, query: str, values: Sequence[int] = ()) -> Iterator[list[tuple[Any, ...]]]:
        try:
            cursor = self._connection.execute(query, tuple(values))
            while chunk := cursor.fetchmany(_CHUNK):
                yield chunk
        except (sqlite3.Error, OverflowError, MemoryError) as error:
            raise InputError(f"{self._label}: the database is damaged ({one_line(str(error))})") from None

    def _rows(self, query: str, values: Sequence[int] = ()) -> Iterator[tuple[Any, ...]]:
        return chain.from_iterable(self._chunks(query, values))


def decoded(text: bytes) -> str:
    """A text of the database, cut to LONGEST_TEXT bytes."""
    return text[:LONGEST_TEXT].decode("utf-8", "replace")


def _within(
    piece: npt.NDArray[np.int64], texts: Texts | None, bounds: Sequence[tuple[int, int, int]], columns: int
) -> _Piece:
    """The first columns of the rows whose other columns keep to their bounds."""
    kept = np.ones(piece.shape[1], bool)
    for place, first, last in bounds:
        kept &= (piece[place] >= first) & (piece[place] <= last)
    return piece[:columns, kept], None if texts is None else Texts(texts.distinct, texts.index[kept])


def _decoded(value: Any) -> Any:
    return decoded(value) if isinstance(value, bytes) else value


@contextmanager
def opened(path: str, label: str) -> Iterator[Database]:
    """The database at `path`, read-only and limited. Raises InputError if it is damaged or asks for too much work."""
    uri = f"file:{quote(os.path.abspath(path))}?mode=ro&immutable=1"
    try:
        connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
    except sqlite3.Error as error:
        raise InputError(f"cannot read {label}: {one_line(str(error))}") from None
    try:
        _restrict(connection, os.path.getsize(path))
        with open(path, "rb") as stream:
            yield Database(connection, stream, label)
    except sqlite3.Error as error:
        raise InputError(f"{label}: the database is damaged ({one_line(str(error))})") from None
    finally:
        connection.close()


def _restrict(connection: sqlite3.Connection, file_bytes: int) -> None:
    connection.text_factory = bytes
    for pragma in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON", "mmap_size = 0"):
        connection.execute(f"PRAGMA {pragma}")
    if hasattr(connection, "setlimit"):
        connection.setlimit(_LIMIT_LENGTH, _LONGEST_VALUE)
    left = _FEWEST_CHECKS + file_bytes // _BYTES_A_CHECK

    def exhausted() -> int:
        nonlocal left
        left -= 1
        return left < 0

    def allowed(action: int, first: str | None, second: str | None, _place: str | None, inner: str | None) -> int:
        """`inner` names the view or trigger that asks, None for this module's own statements."""
        if action == sqlite3.SQLITE_PRAGMA and first == "table_xinfo":
            return sqlite3.SQLITE_OK
        known = action != sqlite3.SQLITE_FUNCTION or second in _FUNCTIONS
        return sqlite3.SQLITE_OK if action in _ALLOWED and known and inner is None else sqlite3.SQLITE_DENY

    connection.set_progress_handler(exhausted, _INSTRUCTIONS)
    connection.set_authorizer(allowed)
