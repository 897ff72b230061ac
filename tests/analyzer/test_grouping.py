"""Rows are grouped as NumPy groups them, by tables of codes and by sorting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceopt.analyzer import grouping
from traceopt.analyzer.grouping import Categorical, group_rows

triples = st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 2), st.integers(0, 5)), max_size=30)


@pytest.mark.parametrize("most_keys", [0, 40, 1 << 22])
@given(triples)
def test_rows_are_grouped_as_by_numpy(most_keys: int, rows: list[tuple[int, int, int]]) -> None:
    table = np.array(rows, np.int32).reshape(-1, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "_MOST_KEYS", most_keys)
        first, group = group_rows(*table.T)
    expected, expected_first, expected_group = np.unique(table, axis=0, return_index=True, return_inverse=True)
    assert first.tolist() == expected_first.tolist()
    assert group.tolist() == expected_group.ravel().tolist()
    assert table[first].tolist() == expected.tolist()


def test_a_column_of_texts() -> None:
    column = Categorical(["gemm", "copy", "other"], np.array([1, 0, 1], np.uint8))
    assert len(column) == 3
    assert [column.at(row) for row in range(3)] == ["copy", "gemm", "copy"]
    assert column.among("copy", "other", "softmax").tolist() == [True, False, True]
    assert column.used == {"gemm", "copy"}


def test_a_column_without_rows() -> None:
    column = Categorical([], np.empty(0, np.uint8))
    assert len(column.among("gemm")) == len(column.used) == 0
