"""Percentiles equal NumPy's to the last bit."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from traceopt.analyzer.arrays.percentiles import median, percentiles

values = st.floats(-1e9, 1e9) | st.integers(-(10**9), 10**9).map(float)


@given(st.lists(values, min_size=1, max_size=30), st.integers(0, 100))
def test_percentiles_are_those_of_numpy(values: list[float], wanted: int) -> None:
    assert percentiles(values, wanted) == [np.percentile(values, wanted)]


@given(st.lists(values, min_size=1, max_size=30))
def test_the_median_is_that_of_numpy(values: list[float]) -> None:
    assert median(values) == np.median(values)
    whole = np.array(values).astype(np.int64)
    assert median(whole) == np.median(whole)


def test_there_is_no_median_of_nothing() -> None:
    assert np.isnan(median([]))
