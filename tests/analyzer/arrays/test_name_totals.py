"""Rows grouped by name: complete groups, largest total first."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.arrays.name_totals import totals_by_name


def test_groups_by_name() -> None:
    codes, rows = np.array([2, 0, 2, -1, 0]), np.array([10, 11, 12, 13, 14])
    found = totals_by_name(["a", "b", "c"], codes, rows, np.array([1, 2, 5, 3, 2]))
    assert [(one.name, one.rows.tolist(), one.total) for one in found] == [
        ("c", [10, 12], 6),
        ("a", [11, 14], 4),
        ("", [13], 3),
    ]


def test_no_rows() -> None:
    none = np.empty(0, np.int64)
    assert totals_by_name([], none, none, none) == []
