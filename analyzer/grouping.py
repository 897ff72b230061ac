"""Columns of few distinct values, as codes; and rows that are alike in several columns, without comparing them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.columns import distinct

Codes = npt.NDArray[np.integer]

_MOST_KEYS = 1 << 22  # in a table of them; with more, the rows are sorted


@dataclass(frozen=True, slots=True)
class Categorical:
    """A column of texts: `codes` are indices in `values`, of which some may be alike or not used."""

    values: Sequence[str]
    codes: Codes

    def __len__(self) -> int:
        return len(self.codes)

    def among(self, *wanted: str) -> npt.NDArray[np.bool_]:
        """Which rows have one of these values. Shape (len,)."""
        return np.array([value in wanted for value in self.values] or [False], bool)[self.codes]

    def at(self, row: int) -> str:
        return self.values[int(self.codes[row])]

    @property
    def used(self) -> set[str]:
        """The values that rows have."""
        return {self.values[code] for code in distinct(self.codes)[0].tolist()}


def group_rows(*columns: Codes) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The first row of each distinct combination of codes (-1 and above), and each row's combination.

    They stand in the order of np.unique with axis=0.
    """
    rows = len(columns[0])
    keys, group = np.zeros(1, np.intp), np.zeros(rows, np.intp)
    for column in columns:
        size = int(column.max(initial=-1)) + 2
        key = group * size
        key += column
        key += 1
        keys, group = distinct(key) if len(keys) * size <= _MOST_KEYS else np.unique(key, return_inverse=True)
    first = np.zeros(len(keys), np.intp)
    first[group[::-1]] = np.arange(rows)[::-1]
    return first, group


def longest_of_group(duration: npt.NDArray[np.int64], group: Codes, groups: int) -> npt.NDArray[np.intp]:
    """Row of the longest of each group, the first of equals; -1: none. Shape (groups,)."""
    longest = np.full(groups, -1, np.int64)
    np.maximum.at(longest, group, duration)
    rows = np.flatnonzero(duration == longest[group])[::-1]
    first = np.full(groups, -1, np.intp)
    first[group[rows]] = rows
    return first
