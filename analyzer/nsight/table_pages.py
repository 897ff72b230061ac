"""Reads columns of an ordinary SQLite table from the pages of its file, as NumPy arrays.

SQLite returns a Python object for each value, which takes most of the time of reading a large export. Only the plainest
form is read here: UTF-8, tables with rowids. Everything else, damage included, raises UnusualTableError, and SQLite
reads it. Source of the format: https://www.sqlite.org/fileformat2.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.tables.schema import I8

Bytes = npt.NDArray[np.uint8]

_HEADER_BYTES = 100
_UTF8 = 1
_INNER, _LEAF = 0x05, 0x0D  # kinds of pages of a table with rowids
_DEEPEST = 40  # levels of pages; SQLite has about 4 for 100 million rows
_BLOCK_BYTES = 4 << 20  # of pages that are decoded together
_LONGEST_VARINT = 9
_PADDING = 16  # bytes behind a block, so that eight bytes can be read from each place in it
_BYTES_OF_TYPE = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0], np.int64)  # of serial types 0 to 9
_NULL, _FLOAT, _ZERO, _ONE, _FIRST_RESERVED, _FIRST_BLOB = 0, 7, 8, 9, 10, 12
_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, with an irregular pattern of bits: 2**64 divided by the golden ratio


class UnusualTableError(Exception):
    """The table is not in the plain form that is read here."""


class Texts(Struct, frozen=True):
    """The texts of some rows as UTF-8: `distinct`, and `index` into it, shape (rows,); -1: the value is no text."""

    distinct: Sequence[bytes]
    index: I8


class TablePages:
    """The pages of one file. Raises UnusualTableError if the file is not in the plain form.

    `long_rows`: rowids of records that go on in other pages, which `read` leaves out. `last_row`: rowid of the last row
    that it has read.
    """

    def __init__(self, stream: BinaryIO) -> None:
        stream.seek(0)
        header = stream.read(_HEADER_BYTES)
        if len(header) < _HEADER_BYTES or int.from_bytes(header[56:60], "big") != _UTF8:
            raise UnusualTableError
        size = int.from_bytes(header[16:18], "big")
        self._page_bytes = 65_536 if size == 1 else size
        if self._page_bytes < 512 or self._page_bytes & (self._page_bytes - 1):
            raise UnusualTableError
        self._usable = self._page_bytes - header[20]
        self._stream = stream
        self._pages = stream.seek(0, 2) // self._page_bytes
        self.long_rows: list[int] = []
        self.last_row: int | None = None

    def read(
        self, root: int, numbers: Sequence[int], text: int | None = None, number_mark: bytes = b""
    ) -> Iterator[tuple[npt.NDArray[np.int64], Texts | None]]:
        """Columns of the table whose first page is `root`, in pieces: integers, shape (columns, rows), with -1 for NULL
        and for a place of -1, and one column of texts. A number behind `number_mark` at the end of a text is cut off.
        """
        leaves = self._leaves(root)
        step = max(1, _BLOCK_BYTES // self._page_bytes)
        for first in range(0, len(leaves), step):
            try:
                piece = self._decoded(leaves[first : first + step], numbers, text, number_mark)
            except (IndexError, ValueError):
                raise UnusualTableError from None
            yield piece

    def _leaves(self, root: int) -> list[int]:
        """The pages with the rows, in the order of the rows."""
        level, seen = [root], 0
        for _ in range(_DEEPEST):
            seen += len(level)
            if seen > self._pages or not level or min(level) < 2 or max(level) > self._pages:
                raise UnusualTableError
            if self._block(level[:1])[0] == _LEAF:
                return level
            level = [child for page in level for child in self._children(page)]
        raise UnusualTableError

    def _children(self, page: int) -> list[int]:
        block = self._block([page]).tobytes()
        pointers = 12 + 2 * int.from_bytes(block[3:5], "big")
        if block[0] != _INNER or pointers > self._page_bytes:
            raise UnusualTableError
        places = [int.from_bytes(block[i : i + 2], "big") for i in range(12, pointers, 2)]
        if places and max(places) + 4 > self._page_bytes:
            raise UnusualTableError
        found = [int.from_bytes(block[place : place + 4], "big") for place in places]
        return [*found, int.from_bytes(block[8:12], "big")]

    def _block(self, pages: Sequence[int]) -> Bytes:
        """The bytes of these pages, with some zeros behind them; pages that are neighbors are read together."""
        parts = []
        for run in np.split(np.array(pages), np.flatnonzero(np.diff(pages) != 1) + 1):
            self._stream.seek((int(run[0]) - 1) * self._page_bytes)
            parts.append(self._stream.read(len(run) * self._page_bytes))
        block = np.frombuffer(b"".join([*parts, bytes(_PADDING)]), np.uint8)
        if len(block) != len(pages) * self._page_bytes + _PADDING:
            raise UnusualTableError
        return block

    def _decoded(
        self, pages: Sequence[int], numbers: Sequence[int], text: int | None, number_mark: bytes
    ) -> tuple[npt.NDArray[np.int64], Texts | None]:
        block = self._block(pages)
        words = _words(block)
        cell = self._cells(block, len(pages))
        payload, record = _varints(block, cell)
        rowid, record = _varints(block, record)
        whole = payload <= self._usable - 35
        size = record - cell + np.where(whole, payload, (self._usable - 12) * 32 // 255 - 23)  # the least of a long row
        if (payload < 1).any() or (np.bincount(cell // self._page_bytes, size) > self._page_bytes).any():
            raise UnusualTableError  # rows that overlap could fill the memory
        long_rows = rowid[~whole].tolist()
        payload, record = payload[whole], record[whole]
        end = record + payload
        if (end > len(block) - _PADDING).any():
            raise UnusualTableError
        header, place = _varints(block, record)
        types_end = value = record + header
        if (header < 1).any() or (header > payload).any():
            raise UnusualTableError
        found = np.full((len(numbers), len(record)), -1, np.int64)
        texts = None
        for column in range(max([*numbers, -1 if text is None else text]) + 1):
            kind, following = _varints(block, place)
            kind[place >= types_end] = _NULL  # a column that was added after the row
            place = np.minimum(following, types_end)
            length = _lengths(kind)
            if (value + length > end).any():
                raise UnusualTableError
            for row in (i for i, wanted in enumerate(numbers) if wanted == column):
                found[row] = _integers(words, value, kind, length)
            if column == text:
                is_text = (kind >= _FIRST_BLOB) & (kind & 1 == 1)
                texts = _distinct(block, words, value, np.where(is_text, length, -1), number_mark)
            value = value + length
        self.long_rows += long_rows
        self.last_row = int(rowid[-1]) if len(rowid) else self.last_row
        return found, texts

    def _cells(self, block: Bytes, pages: int) -> I8:
        """Where the rows begin in the block, shape (rows,)."""
        page = np.arange(pages) * self._page_bytes
        if (block[page] != _LEAF).any():
            raise UnusualTableError
        count = block[page + 3].astype(np.int64) * 256 + block[page + 4]
        if (8 + 2 * count > self._page_bytes).any():
            raise UnusualTableError
        nth = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        page = np.repeat(page, count)
        pointer = page + 8 + 2 * nth
        place = block[pointer].astype(np.int64) * 256 + block[pointer + 1]
        if (place >= self._page_bytes).any():
            raise UnusualTableError
        return np.asarray(page + place)


def _words(block: Bytes) -> npt.NDArray[np.int64]:
    """Eight bytes from each place of the block as one number in the byte order of the file."""
    view = np.lib.stride_tricks.as_strided(block, (len(block) - 7, 8), (1, 1), writeable=False)
    return view.view(">i8")[:, 0]


def _varints(block: Bytes, place: I8) -> tuple[I8, I8]:
    """Numbers of one to nine bytes with seven bits each (the ninth: eight), and the places behind them."""
    byte = block[place].astype(np.int64)
    value, following = byte & 0x7F, place + 1
    rows = np.flatnonzero(byte >= 0x80)
    for nth in range(2, _LONGEST_VARINT + 1):
        if not len(rows):
            break
        byte = block[following[rows]].astype(np.int64)
        following[rows] += 1
        value[rows] = value[rows] << 8 | byte if nth == _LONGEST_VARINT else value[rows] << 7 | byte & 0x7F
        rows = rows[byte >= 0x80]
    return value, following


def _lengths(kind: I8) -> I8:
    """Bytes of values with these serial types. Raises UnusualTableError for types that no file uses."""
    if (kind < 0).any() or ((kind >= _FIRST_RESERVED) & (kind < _FIRST_BLOB)).any():
        raise UnusualTableError
    return np.where(kind < _FIRST_RESERVED, _BYTES_OF_TYPE[np.minimum(kind, 9)], (kind - _FIRST_BLOB) >> 1)


def _integers(words: npt.NDArray[np.int64], place: I8, kind: I8, length: I8) -> I8:
    if ((kind == _FLOAT) | (kind >= _FIRST_BLOB)).any():
        raise UnusualTableError
    value = words[place].astype(np.int64) >> np.minimum(64 - 8 * length, 63)
    return np.select([kind == _NULL, kind == _ZERO, kind == _ONE], [-1, 0, 1], value)


def _distinct(block: Bytes, words: npt.NDArray[np.int64], start: I8, length: I8, number_mark: bytes) -> Texts:
    """The texts at these places; a length of -1: no text. Two texts are one if 64 bits of their hashes agree."""
    rows = np.flatnonzero(length >= 0)
    index = np.full(len(start), -1, np.int64)
    first, size = start[rows], _cut(block, start[rows], length[rows], number_mark)
    mixed = _hashes(words, first, size)
    _, found, inverse = np.unique(mixed, return_index=True, return_inverse=True)
    raw = block.tobytes()
    spans = zip(first[found].tolist(), size[found].tolist(), strict=True)
    index[rows] = inverse
    return Texts([raw[begin : begin + count] for begin, count in spans], index)


def _cut(block: Bytes, start: I8, length: I8, number_mark: bytes) -> I8:
    """Lengths of the texts without a number that follows the mark at the end."""
    cut = length.copy()
    rows = np.flatnonzero(length > len(number_mark)) if number_mark else np.empty(0, np.int64)
    while len(rows):
        last = block[start[rows] + cut[rows] - 1]
        rows = rows[(last >= ord("0")) & (last <= ord("9"))]
        cut[rows] -= 1
        rows = rows[cut[rows] > len(number_mark)]
    rows = np.flatnonzero(cut < length)
    marked = np.ones(len(rows), bool)
    for nth, byte in enumerate(number_mark):
        marked &= block[start[rows] + cut[rows] - len(number_mark) + nth] == byte
    return np.where(np.isin(np.arange(len(cut)), rows[marked]), cut, length)


def _hashes(words: npt.NDArray[np.int64], start: I8, length: I8) -> npt.NDArray[np.uint64]:
    mixed: npt.NDArray[np.uint64] = length.astype(np.uint64) * _MIX
    rows = np.flatnonzero(length > 0)
    nth = 0
    while len(rows):
        left = length[rows] - nth
        word = words[start[rows] + nth].astype(np.int64).view(np.uint64)
        word >>= (8 * np.maximum(8 - left, 0)).astype(np.uint64)  # without the bytes behind the text
        value = (mixed[rows] ^ word) * _MIX
        mixed[rows] = value ^ (value >> np.uint64(29))
        nth += 8
        rows = rows[left > 8]
    return mixed
