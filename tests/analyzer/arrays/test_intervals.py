"""Interval arithmetic agrees with sets of integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from traceopt.analyzer.arrays.intervals import EMPTY, Intervals, clip, complement, intersect, merge, subtract, union

Pairs = list[tuple[int, int]]

time = st.integers(-30, 30)
pairs = st.lists(st.tuples(time, time), max_size=12)  # reversed and empty ones too


def made(spans: Pairs) -> Intervals:
    array = np.array(spans, np.int64).reshape(-1, 2)
    return union(array[:, 0], array[:, 1])


def model(spans: Pairs) -> set[int]:
    return {t for start, end in spans for t in range(start, end)}


def points(a: Intervals) -> set[int]:
    """The integers in the set, which must be in its normal form."""
    assert a.start.dtype == a.end.dtype == np.int64
    assert (a.start < a.end).all(), "an interval is empty"
    assert (a.start[1:] > a.end[:-1]).all(), "two intervals touch, overlap or are out of order"
    return model(list(zip(a.start.tolist(), a.end.tolist(), strict=True)))


@given(pairs)
@example([])
@example([(0, 5), (5, 9)])  # touching
@example([(0, 5), (0, 5), (2, 3)])  # repeated, inside
@example([(3, 3), (7, 2)])  # nothing
def test_union(a: Pairs) -> None:
    assert points(made(a)) == model(a)
    assert made(a).total == len(model(a)) == made(a).length.sum()
    assert len(made(a)) == len(made(a).start)


@given(pairs, time, time)
def test_clip_and_complement(a: Pairs, start: int, end: int) -> None:
    window = set(range(start, end))
    assert points(clip(made(a), start, end)) == model(a) & window
    assert points(complement(made(a), start, end)) == window - model(a)


@given(pairs, pairs, pairs)
@example([(0, 9)], [(0, 3), (3, 9)], [])
def test_sets_of_two(a: Pairs, b: Pairs, c: Pairs) -> None:
    assert points(intersect(made(a), made(b))) == model(a) & model(b)
    assert points(subtract(made(a), made(b))) == model(a) - model(b)
    assert points(merge(made(a), made(b), made(c))) == model(a) | model(b) | model(c)


@given(pairs, pairs, st.lists(time))
def test_measures_of_many_queries(a: Pairs, queries: Pairs, times: list[int]) -> None:
    """Queries overlap, repeat, and may be empty or reversed (then they hold nothing)."""
    query = np.array(queries, np.int64).reshape(-1, 2)
    expected = [len(model(a) & set(range(start, end))) for start, end in queries]
    assert made(a).within(query[:, 0], query[:, 1]).tolist() == expected
    at = np.array(times, np.int64)
    assert made(a).contains(at).tolist() == [t in model(a) for t in times]
    assert made(a).covered_before(at).tolist() == [sum(x < t for x in model(a)) for t in times]


def test_nanoseconds_of_an_epoch_stay_exact() -> None:
    base = 1_700_000_000_000_000_000
    a = made([(base, base + 3), (base + 5, base + 6)])
    assert a.total == 4
    assert complement(a, base - 1, base + 7).length.tolist() == [1, 2, 1]
    assert a.within(np.array([base + 2]), np.array([base + 6])).tolist() == [2]


@pytest.mark.parametrize("operation", [intersect, subtract, merge])
def test_empty_sets(operation: object) -> None:
    assert callable(operation)
    assert len(operation(EMPTY, EMPTY)) == 0
    some = made([(1, 2)])
    assert points(operation(some, EMPTY)) == (set() if operation is intersect else {1})
    assert points(operation(EMPTY, some)) == ({1} if operation is merge else set())
