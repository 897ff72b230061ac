"""Two sequences of calls are aligned: equal ones completely, changed ones around the changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceopt.analyzer.recordings.operator_alignment import Calls, align

LAYERS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10] * 6  # repeating names, like a model's layers


def calls(names: list[int], inside: list[int] | None = None) -> Calls:
    return Calls(np.array(names, np.int32), np.array(inside or [0] * len(names), np.int64))


def matched(left: list[int], right: list[int]) -> list[tuple[int, int]]:
    return matched_calls(calls(left), calls(right))


def matched_calls(left: Calls, right: Calls) -> list[tuple[int, int]]:
    at_left, at_right = align(left, right)
    return list(zip(at_left.tolist(), at_right.tolist(), strict=True))


@given(st.lists(st.integers(0, 4), max_size=60))
def test_a_sequence_matches_itself(names: list[int]) -> None:
    assert matched(names, names) == [(i, i) for i in range(len(names))]


@given(st.lists(st.integers(0, 3), max_size=40), st.lists(st.integers(0, 3), max_size=40))
def test_matches_have_the_same_name_and_keep_the_order(left: list[int], right: list[int]) -> None:
    pairs = matched(left, right)
    assert all(left[i] == right[j] for i, j in pairs)
    for side in (0, 1):
        places = [pair[side] for pair in pairs]
        assert places == sorted(set(places))


@given(st.data())
def test_an_insertion_costs_only_its_neighborhood(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(LAYERS)))
    more = data.draw(st.lists(st.integers(20, 30), min_size=1, max_size=5))
    right = LAYERS[:at] + more + LAYERS[at:]
    assert matched(LAYERS, right) == [(i, i if i < at else i + len(more)) for i in range(len(LAYERS))]


def test_changes_at_two_places_leave_what_lies_between() -> None:
    right = [50, *LAYERS[:30], 51, 52, *LAYERS[31:], 53]
    assert set(matched([40, *LAYERS, 41], right)) >= {(i + 1, i + 1) for i in range(30)}
    assert {(i + 1, i + 2) for i in range(31, 60)} <= set(matched([40, *LAYERS, 41], right))


@pytest.mark.parametrize(("left", "right"), [([], []), ([1], []), ([], [1, 2]), ([1, 2], [3])])
def test_nothing_in_common(left: list[int], right: list[int]) -> None:
    assert matched(left, right) == []


def test_loops_of_other_lengths_match_round_by_round() -> None:
    """Too many rounds are missing for the shortest difference: the body of each loop still matches itself."""
    first, second, third = list(range(10, 30)), list(range(40, 70)), list(range(80, 99))
    left, right = [*first * 60, *second * 20, *third * 9], [*first * 30, *second * 50, *third * 40]
    pairs = matched(left, right)
    assert all(left[i] == right[j] for i, j in pairs)
    assert [i for i, _ in pairs] == sorted({i for i, _ in pairs})
    assert len(pairs) >= 0.95 * (len(first) * 30 + len(second) * 20 + len(third) * 9)


def test_steps_with_nothing_in_common_have_no_context_in_common() -> None:
    assert matched(list(range(400)), list(range(500, 900))) == []


def layers(rounds: list[int]) -> Calls:
    """A layer for each sequence: it calls three operators a round, of which the last calls another one."""
    names, inside = [], []
    for count in rounds:
        names += [1, *[2, 3, 4] * count]
        inside += [3 * count, *[0, 1, 0] * count]
    return calls(names, inside)


def test_a_call_matches_its_like_though_what_it_calls_repeats_more_often() -> None:
    rounds, others = np.random.default_rng(0).integers(10, 70, (2, 40)).tolist()
    left, right = layers(rounds), layers(others)
    pairs = matched_calls(left, right)
    assert all(left.name[i] == right.name[j] for i, j in pairs)
    assert pairs == sorted(set(pairs))
    assert [j for _, j in pairs] == sorted({j for _, j in pairs})
    outer = [np.flatnonzero(side.name == 1).tolist() for side in (left, right)]
    assert set(zip(*outer, strict=True)) <= set(pairs)
    common = sum(map(min, rounds, others))
    assert len(pairs) == len(rounds) + 3 * common


def test_calls_may_be_nested_as_deeply_as_a_file_says() -> None:
    """Each calls something else on either side, and the next one."""
    depth = 3_000
    inside = [count for level in range(depth, 0, -1) for count in (0, 2 * level - 2)]
    left, right = (calls([other, 1] * depth, inside) for other in (2, 3))
    assert matched_calls(left, right)[:40] == [(at, at) for at in range(1, 80, 2)]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30))
def test_the_outermost_calls_contain_all_others(sizes: list[int]) -> None:
    inside = [count for size in sizes for count in range(size, -1, -1)]  # each call calls the next one
    starts = np.cumsum([0, *[size + 1 for size in sizes]])[:-1]
    assert calls([0] * len(inside), inside).outermost.tolist() == starts.tolist()
