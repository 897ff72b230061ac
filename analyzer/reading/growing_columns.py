"""Typed columns that grow, and fast conversions from lists of decoded values to NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

_INITIAL_ROWS = 1 << 12
_FITS_ALL = 1 << 31  # numbers below this size, as nearly all are, fit into i4 and i8
_encode = msgspec.msgpack.Encoder().encode
_PACKED_FLOAT = np.dtype([("tag", "u1"), ("value", ">f8")])
_TRIPLE_BYTES = 1 + 3 * _PACKED_FLOAT.itemsize
_FLOAT_TAG, _TRIPLE_TAG = 0xCB, 0x93  # msgpack tags of a float64 and of an array of three


def _header_bytes(n: int) -> int:
    """Size of a msgpack array header."""
    return 1 if n < 16 else 3 if n < 65536 else 5


def floats(lists: Sequence[Sequence[Any]]) -> Floats | None:
    """Lists of Python floats, all of the same length, as rows of a float64 array. Shape (lists, length).

    msgpack writes each float as 9 bytes, which NumPy then reads in place: this takes an eighth of np.array's time
    (benchmarks/reading_choices.py). None if any value is not a float.
    """
    packed = _encode(lists)
    rows, n = len(lists), len(lists[0])
    before, of_row = _header_bytes(rows), _header_bytes(n)
    row_bytes = of_row + 9 * n
    if len(packed) != before + rows * row_bytes:
        return None
    view = np.ndarray((rows, n), _PACKED_FLOAT, packed, before + of_row, (row_bytes, _PACKED_FLOAT.itemsize))
    if (view["tag"] != _FLOAT_TAG).any():  # a string such as "stream 7" also takes 9 bytes
        return None
    found: Floats = view["value"].astype(np.float64)
    return found


def triples(values: Sequence[Any]) -> Floats | None:
    """A list of float triples as an array of shape (n, 3); None if any item is not a triple of floats.

    Works like `floats`, in a tenth of np.array's time.
    """
    if not values:
        return np.empty((0, 3))
    packed = _encode(values)
    n, before = len(values), _header_bytes(len(values))
    if len(packed) != before + _TRIPLE_BYTES * n:
        return None
    tags = np.ndarray((n,), np.uint8, packed, before, (_TRIPLE_BYTES,))
    view = np.ndarray((n, 3), _PACKED_FLOAT, packed, before + 1, (_TRIPLE_BYTES, _PACKED_FLOAT.itemsize))
    if (tags != _TRIPLE_TAG).any() or (view["tag"] != _FLOAT_TAG).any():
        return None
    found: Floats = view["value"].astype(np.float64)
    return found


class GrowingColumns:
    """Rows of a growing table: one array per column, enlarged in place (realloc) and never held twice."""

    __slots__ = ("_arrays", "rows")

    def __init__(self, schema: Mapping[str, str]) -> None:
        """`schema` maps a column to its dtype; "i4x3" is a column of triples."""
        self.rows = 0
        self._arrays: dict[str, Array] = {}
        for name, dtype in schema.items():
            base, _, width = dtype.partition("x")
            shape = (_INITIAL_ROWS, int(width)) if width else (_INITIAL_ROWS,)
            self._arrays[name] = np.empty(shape, base)

    @classmethod
    def of(cls, arrays: dict[str, Array]) -> GrowingColumns:
        """Creates columns from complete arrays of equal length."""
        columns = cls({})
        columns._arrays, columns.rows = arrays, len(next(iter(arrays.values())))
        return columns

    def append(self, rows: int, columns: Mapping[str, Array | int]) -> None:
        """Appends `rows` rows; a plain number fills its column."""
        end = self.rows + rows
        for name, array in self._arrays.items():
            if end > len(array):
                grown = max(end, len(array) * 3 // 2)
                array.resize((grown, *array.shape[1:]), refcheck=False)
            array[self.rows : end] = columns[name]
        self.rows = end

    def finish(self) -> dict[str, Array]:
        """The columns cut to their length; the table must not grow afterwards."""
        for array in self._arrays.values():
            array.resize((self.rows, *array.shape[1:]), refcheck=False)
        return self._arrays


def fit(rows: Floats, dtypes: tuple[str, ...]) -> None:
    """Makes each row fit its integer type, in place: NaN and numbers out of range become -1 ("not in the event")."""
    if not rows.size or (rows.min() >= -_FITS_ALL and rows.max() < _FITS_ALL):
        return
    low, beyond = _limits(dtypes)
    fits = (rows.min(axis=1) >= low) & (rows.max(axis=1) < beyond)
    for place in np.flatnonzero(~fits).tolist():
        row = rows[place]
        row[~((row >= low[place]) & (row < beyond[place]))] = -1


@cache
def _limits(dtypes: tuple[str, ...]) -> tuple[Floats, Floats]:
    """The smallest value of each type, and the first value that is too large (the largest int64 is not a float)."""
    limits = [np.iinfo(dtype) for dtype in dtypes]
    return np.array([float(limit.min) for limit in limits]), np.array([float(limit.max) + 1 for limit in limits])
