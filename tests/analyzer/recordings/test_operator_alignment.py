"""Two sequences of names are aligned: equal ones completely, changed ones around the changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceopt.analyzer.recordings.operator_alignment import align

LAYERS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10] * 6  # repeating names, like a model's layers


def matched(left: list[int], right: list[int]) -> list[tuple[int, int]]:
    at_left, at_right = align(np.array(left, np.int32), np.array(right, np.int32))
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
