"""Rows are grouped the same way as by NumPy, with look-up tables and with sorting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceopt.analyzer.arrays import grouping
from traceopt.analyzer.arrays.grouping import (
    Categorical,
    distinct_values,
    group_rows,
    longest_of_group,
    numbered,
    split,
    totals_by_name,
)

triples = st.lists(st.tuples(st.integers(-4, 3), st.integers(-1, 2), st.integers(0, 5)), max_size=30)


@pytest.mark.parametrize("most", [-1, 5, 1 << 16])
@given(triples)
def test_rows_are_grouped_as_by_numpy(most: int, rows: list[tuple[int, int, int]]) -> None:
    table = np.array(rows, np.int32).reshape(-1, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "_MOST_VALUES", most)
        first, group = group_rows(*table.T)
    expected, expected_first, expected_group = np.unique(table, axis=0, return_index=True, return_inverse=True)
    assert first.tolist() == expected_first.tolist()
    assert group.tolist() == expected_group.ravel().tolist()
    assert table[first].tolist() == expected.tolist()


def test_a_column_of_texts() -> None:
    column = Categorical(["gemm", "copy", "other"], np.array([1, 0, 1], np.int32))
    assert len(column) == 3
    assert [column.at(row) for row in range(3)] == ["copy", "gemm", "copy"]
    assert column.among("copy", "other", "softmax").tolist() == [True, False, True]
    assert column.used == {"gemm", "copy"}


def test_a_column_without_rows() -> None:
    column = Categorical([], np.empty(0, np.int32))
    assert len(column.among("gemm")) == len(column.used) == 0


@pytest.mark.parametrize("most", [-1, 1 << 16])
@given(st.lists(st.integers(-9, 1 << 20), max_size=20))
def test_distinct_values_are_those_of_numpy(most: int, values: list[int]) -> None:
    array = np.array(values, np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "_MOST_VALUES", most)
        assert distinct_values(array).tolist() == np.unique(array).tolist()
        assert [part.tolist() for part in numbered(array)] == [
            part.tolist() for part in np.unique(array, return_inverse=True)
        ]


@given(st.lists(st.integers(0, 4), max_size=20))
def test_rows_are_split_by_group(group: list[int]) -> None:
    parts = split(np.arange(len(group)) * 10, np.array(group, np.int64), 5)
    assert [part.tolist() for part in parts] == [
        [10 * row for row, one in enumerate(group) if one == wanted] for wanted in range(5)
    ]


def test_the_longest_of_each_group_is_the_first_of_equals() -> None:
    longest = longest_of_group(np.array([3, 7, 7, 1]), np.array([0, 2, 2, 0]), 4)
    assert longest.tolist() == [0, -1, 1, -1]


def test_groups_by_name() -> None:
    codes, rows = np.array([2, 0, 2, -1, 0]), np.array([10, 11, 12, 13, 14])
    found = totals_by_name(["a", "b", "c"], codes, rows, np.array([1, 2, 5, 3, 2]))
    assert [(total.name, total.rows.tolist(), total.total) for total in found] == [
        ("c", [10, 12], 6),
        ("a", [11, 14], 4),
        ("", [13], 3),
    ]


def test_no_rows_have_no_names() -> None:
    none = np.empty(0, np.int64)
    assert totals_by_name([], none, none, none) == []
