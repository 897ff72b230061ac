"""Growing typed columns, and the fast ways from lists of decoded values to numpy arrays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cache
from itertools import count
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Value = TypeVar("Value", bound=Hashable)

_INITIAL_ROWS = 1 << 12
_FITS_ALL = 1 << 31  # nearer to zero than this, as nearly all are, numbers fit i4 and i8
_encode = msgspec.msgpack.Encoder().encode
_PACKED_FLOAT = np.dtype([("tag", "u1"), ("value", ">f8")])
_TRIPLE_BYTES = 1 + 3 * _PACKED_FLOAT.itemsize
_FLOAT_TAG, _TRIPLE_TAG = 0xCB, 0x93  # msgpack's float 64 and array of three


def _header_bytes(n: int) -> int:
    """Size of a msgpack array header."""
    return 1 if n < 16 else 3 if n < 65536 else 5


def floats(lists: Sequence[Sequence[Any]]) -> Floats | None:
    """Lists of Python floats, all of one length, as rows of a float64 array. Shape (lists, length).

    msgpack writes each float as 9 bytes, which NumPy then reads in place: an eighth of np.array's time
    (benchmarks/reading_choices.py). None when something in the lists is not a float.
    """
    packed = _encode(lists)
    rows, n = len(lists), len(lists[0])
    before, of_row = _header_bytes(rows), _header_bytes(n)
    row_bytes = of_row + 9 * n
    if len(packed) != before + rows * row_bytes:
        return None
    view = np.ndarray((rows, n), _PACKED_FLOAT, packed, before + of_row, (row_bytes, _PACKED_FLOAT.itemsize))
    if (view["tag"] != _FLOAT_TAG).any():  # "stream 7" has 9 bytes too
        return None
    found: Floats = view["value"].astype(np.float64)
    return found


def triples(values: Sequence[Any]) -> Floats | None:
    """A list of float triples as an array of shape (n, 3); None when something in the list is no triple.

    A tenth of np.array's time, in the same way.
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


class Codes(Generic[Value]):
    """A dictionary that numbers distinct values in order of first sight."""

    __slots__ = ("_codes",)

    def __init__(self) -> None:
        self._codes: defaultdict[Value, int] = defaultdict(count().__next__)

    def __len__(self) -> int:
        return len(self._codes)

    def encode(self, values: Iterable[Value], n: int) -> npt.NDArray[np.int32]:
        """Codes of n values; one dictionary look-up a value is the floor for strings."""
        return np.fromiter(map(self._codes.__getitem__, values), np.int32, n)

    def values(self) -> list[Value]:
        return list(self._codes)


class Columns:
    """Rows of a table that grows: one array a column, enlarged in place (realloc), never held twice."""

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
    def of(cls, arrays: dict[str, Array]) -> Columns:
        """Full columns, of the same length."""
        columns = cls({})
        columns._arrays, columns.rows = arrays, len(next(iter(arrays.values())))
        return columns

    def append(self, rows: int, columns: Mapping[str, Array | int]) -> None:
        """Adds `rows` rows; a plain number fills its column."""
        end = self.rows + rows
        for name, array in self._arrays.items():
            if end > len(array):
                grown = max(end, len(array) * 3 // 2)
                array.resize((grown, *array.shape[1:]), refcheck=False)
            array[self.rows : end] = columns[name]
        self.rows = end

    def finish(self) -> dict[str, Array]:
        """The columns cut to their rows; the table must not grow afterwards."""
        for array in self._arrays.values():
            array.resize((self.rows, *array.shape[1:]), refcheck=False)
        return self._arrays


def fit(rows: Floats, dtypes: tuple[str, ...]) -> None:
    """Makes each row fit for its integer type: what is no number, or too large, becomes -1 ("not in the event")."""
    if not rows.size or (rows.min() >= -_FITS_ALL and rows.max() < _FITS_ALL):
        return
    low, beyond = _limits(dtypes)
    fits = (rows.min(axis=1) >= low) & (rows.max(axis=1) < beyond)
    for place in np.flatnonzero(~fits).tolist():
        row = rows[place]
        row[~((row >= low[place]) & (row < beyond[place]))] = -1


@cache
def _limits(dtypes: tuple[str, ...]) -> tuple[Floats, Floats]:
    """The least value of each type, and the first that is too large (the largest int64 has no float of its own)."""
    limits = [np.iinfo(dtype) for dtype in dtypes]
    return np.array([float(one.min) for one in limits]), np.array([float(one.max) + 1 for one in limits])
