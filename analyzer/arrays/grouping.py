"""Grouping of rows by columns of small integer codes, such as those of names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

CodeArray = npt.NDArray[np.integer]
Integer = TypeVar("Integer", bound=np.integer)

# Size of the look-up table; if the values span more than this and than the number of rows, they are sorted.
_MOST_VALUES = 1 << 16


def distinct(codes: npt.NDArray[np.integer]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Same as np.unique(codes, return_inverse=True) without the sort, for small non-negative codes."""
    seen = np.zeros(int(codes.max(initial=-1)) + 1, bool)
    seen[codes] = True
    return np.flatnonzero(seen), (np.cumsum(seen) - 1)[codes]


class Categorical(Struct, frozen=True):
    """A column of strings: `codes` index into `values`, which may hold duplicates and unused entries."""

    values: Sequence[str]
    codes: CodeArray

    def __len__(self) -> int:
        return len(self.codes)

    def among(self, *wanted: str) -> npt.NDArray[np.bool_]:
        """Which rows have one of these values. Shape (len,)."""
        return np.array([value in wanted for value in self.values] or [False], bool)[self.codes]

    def at(self, row: int) -> str:
        return self.values[int(self.codes[row])]

    @property
    def used(self) -> set[str]:
        """The values that occur in the column."""
        return {self.values[code] for code in distinct(self.codes)[0].tolist()}


def numbered(values: npt.NDArray[Integer]) -> tuple[npt.NDArray[Integer], npt.NDArray[np.intp]]:
    """Same as np.unique(values, return_inverse=True); uses a look-up table if the values are close together.

    The table takes a fifth of np.unique's time (benchmarks/reading_choices.py).
    """
    if not len(values):
        return values, np.empty(0, np.intp)
    least, most = int(values.min()), int(values.max())
    if most - least > max(_MOST_VALUES, len(values)):
        return np.unique(values, return_inverse=True)
    known, inverse = distinct(values - least)
    return (known + least).astype(values.dtype), inverse


def distinct_values(values: npt.NDArray[Integer]) -> npt.NDArray[Integer]:
    """Same as np.unique(values), in a tenth of its time or less: NumPy 2.4 hashes (benchmarks/reading_choices.py)."""
    if not len(values):
        return values
    least, most = int(values.min()), int(values.max())
    if most - least > max(_MOST_VALUES, len(values)):
        ordered = np.sort(values)
        return np.asarray(ordered[np.append(True, ordered[1:] != ordered[:-1])])
    seen = np.zeros(most - least + 1, bool)
    seen[values - least] = True
    return np.asarray(np.flatnonzero(seen) + least, values.dtype)


def group_rows(*columns: CodeArray) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The first row of each distinct combination of values, and the combination number of each row.

    Combinations are in the order of np.unique with axis=0.
    """
    rows = len(columns[0])
    group, groups = np.zeros(rows, np.intp), 1
    for column in columns:
        values, value = numbered(column)
        if len(values) > 1:
            keys, group = numbered(group * len(values) + value)
            groups = len(keys)
    first = np.zeros(groups if rows else 0, np.intp)
    first[group[::-1]] = np.arange(rows)[::-1]
    return first, group


def split(rows: npt.NDArray[np.intp], group: CodeArray, groups: int) -> list[npt.NDArray[np.intp]]:
    """The rows of each group, in their original order. `group` has each row's group, 0 to `groups` - 1."""
    small = group.astype(np.uint16) if groups < 1 << 16 else group  # NumPy radix-sorts 16-bit integers in one pass
    ends = np.cumsum(np.bincount(group, minlength=groups))
    return np.split(rows[np.argsort(small, kind="stable")], ends[:-1])


def longest_of_group(duration: npt.NDArray[np.int64], group: CodeArray, groups: int) -> npt.NDArray[np.intp]:
    """Row of the longest in each group, the first if several are equal; -1 for an empty group. Shape (groups,)."""
    longest = np.full(groups, -1, np.int64)
    np.maximum.at(longest, group, duration)
    rows = np.flatnonzero(duration == longest[group])[::-1]
    first = np.full(groups, -1, np.intp)
    first[group[rows]] = rows
    return first


class NameTotal(Struct, frozen=True):
    """The rows with one name, in their original order, and the total of their amounts."""

    name: str  # "" if the rows have none
    rows: npt.NDArray[np.int64]
    total: int


def totals_by_name(
    names: Sequence[str], codes: npt.NDArray[np.integer], rows: npt.NDArray[np.integer], amount: npt.NDArray[np.int64]
) -> list[NameTotal]:
    """Rows grouped by the name of their code (-1: no name), largest total first. The arrays have one shape."""
    known, group = numbered(codes)
    totals = np.bincount(group, weights=amount, minlength=len(known)).astype(np.int64)
    members = split(np.arange(len(rows)), group, len(known)) if len(known) else []
    return [
        NameTotal(names[known[i]] if known[i] >= 0 else "", rows[members[i]].astype(np.int64), int(totals[i]))
        for i in np.argsort(-totals, kind="stable")
    ]
