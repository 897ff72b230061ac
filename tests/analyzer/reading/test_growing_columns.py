"""Fast columns equal a plain conversion, at every length at which the packing changes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceopt.analyzer.reading.growing_columns import GrowingColumns, fit, floats, triples

LENGTHS = [0, 1, 15, 16, 17, 65_535, 65_536]


@pytest.mark.parametrize("n", LENGTHS)
def test_floats_and_triples_of_every_packing(n: int) -> None:
    values = [i * 0.5 for i in range(n)]
    for rows in (1, 3, 20):
        found = floats([[value + row for value in values] for row in range(rows)])
        assert found is not None
        assert found.shape == (rows, n)
        assert all(found[row].tolist() == [value + row for value in values] for row in range(rows))
    found = triples([(v, -v, v + 1) for v in values])
    assert found is not None
    assert found.shape == (n, 3)
    assert found.tolist() == [[v, -v, v + 1] for v in values]


@given(st.lists(st.floats(), max_size=20), st.integers(0, 20), st.sampled_from([None, "x", "12345678", 1, True, [1.0]]))
def test_what_is_no_float_is_noticed(values: list[float], place: int, other: object) -> None:
    found = floats([values])
    assert found is not None
    assert all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(found[0].tolist(), values, strict=True))
    mixed = [*values[:place], other, *values[place:]]
    assert floats([mixed]) is None
    assert floats([[*values, 1.0], mixed]) is None


@pytest.mark.parametrize("other", [None, "grid(128,)", (1.0, 2.0), (1.0, 2.0, 3.0, 4.0), (1.0, None, 2.0), ()])
def test_what_is_no_triple_is_noticed(other: object) -> None:
    assert triples([(1.0, 2.0, 3.0), other]) is None


@pytest.mark.parametrize(
    "other", ["x" * 27, ("12345678", 1.0, 2.0), (1.0, 2.0, "12345678"), (None, 1.0, "1234567890123456")]
)
def test_texts_as_long_as_packed_numbers_are_noticed(other: object) -> None:
    assert triples([other]) is None
    assert floats([["stream 7"]]) is None
    assert floats([["1234567", "123456789"]]) is None
    assert floats([[1.0], ["stream 7"]]) is None


@pytest.mark.parametrize("n", LENGTHS)
def test_columns_grow_and_narrow(n: int) -> None:
    columns = GrowingColumns({"a": "i8", "b": "i4x3", "c": "u1"})
    values = np.arange(n, dtype=np.float64)
    for part in np.array_split(values, 7):
        columns.append(len(part), {"a": part, "b": np.stack([part] * 3, axis=1), "c": 2})
    done = columns.finish()
    assert done["a"].tolist() == values.tolist()
    assert done["b"].tolist() == [[v] * 3 for v in values]
    assert done["c"].tolist() == [2] * n
    assert [done[name].dtype.str[1:] for name in "abc"] == ["i8", "i4", "u1"]


def test_what_does_not_fit_is_not_in_the_event() -> None:
    values = np.array([1.0, -1.0, 2.0**31 - 1, 2.0**31, -(2.0**40), math.inf, -math.inf, math.nan])
    rows = np.stack([values, values])
    fit(rows, ("i4", "i8"))
    assert rows[0].tolist() == [1, -1, 2**31 - 1, -1, -1, -1, -1, -1]
    assert rows[1].tolist() == [1, -1, 2**31 - 1, 2**31, -(2**40), -1, -1, -1]
    fit(np.empty((2, 0)), ("i4", "i8"))


@pytest.mark.parametrize("value", [2.0**31 - 1, 2.0**31, -(2.0**31), -(2.0**31) - 1])
@pytest.mark.parametrize("dtype", ["i4", "i8"])
def test_the_edge_of_32_bits(value: float, dtype: str) -> None:
    rows = np.array([[1.0, value]])
    fit(rows, (dtype,))
    held = dtype == "i8" or -(2**31) <= value < 2**31
    assert rows.astype(dtype).tolist() == [[1, int(value) if held else -1]]


@pytest.mark.parametrize("value", [2.0**63, -(2.0**63), 2.0**64])
def test_the_edge_of_64_bits(value: float) -> None:
    rows = np.array([[value]])
    fit(rows, ("i8",))
    assert rows.astype(np.int64).tolist() == [[-(2**63) if value < 0 else -1]]
