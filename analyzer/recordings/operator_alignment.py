"""Aligns the operators of two steps: two sequences of nested calls that are mostly the same."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

import numpy as np
from msgspec import Struct

from traceopt.analyzer.tables.schema import I4, I8, Mask

# Names that only one side has, in steps and in what a call calls; with more, calls are matched before what they call.
_MOST_EDITS, _FEW_EDITS = 300, 30
_LEVELS = 50  # of calls inside calls, more than models have
_CONTEXT = (1, 2, 4)  # doubles what a code stands for each time: a name and the seven that follow it


class Calls(Struct, frozen=True):
    """Calls of a thread in the order of their starts, each before what it calls."""

    name: I4
    inside: I8  # how many of the next ones each contains

    def __len__(self) -> int:
        return len(self.name)

    def part(self, begin: int, end: int) -> Calls:
        most = np.arange(end - begin - 1, -1, -1)
        return Calls(self.name[begin:end], np.minimum(self.inside[begin:end], most))

    def flat(self, places: I8) -> Calls:
        """Some of the calls, without what they contain."""
        return Calls(self.name[places], np.zeros_like(places))

    @property
    def outermost(self) -> I8:
        """Positions of the calls that no other one contains."""
        places = np.arange(len(self))
        return np.flatnonzero(places > np.append(-1, np.maximum.accumulate(places + self.inside)[:-1]))


def align(left: Calls, right: Calls, levels: int = _LEVELS) -> tuple[I8, I8]:
    """Matching positions in `left` and `right`, both increasing.

    As few names as possible are left out (Myers, "An O(ND) difference algorithm and its variations", 1986), so that a
    model's identical layers are not confused. In steps that differ in many names, such as loops with another number of
    rounds, calls that no other one contains are matched first, and then what they call, to so many `levels`. The rest
    is matched by context: the first occurrence of a name and those that follow it is the first of the other side, and
    so on.
    """
    shorter = min(len(left), len(right))
    head = count_same(left.name[:shorter], right.name[:shorter])
    tail = count_same(left.name[::-1][: shorter - head], right.name[::-1][: shorter - head])
    middle, other = left.part(head, len(left) - tail), right.part(head, len(right) - tail)
    positions = _fewest_edits(middle.name, other.name, _MOST_EDITS if levels == _LEVELS else _FEW_EDITS)
    middle_left, middle_right = positions if positions is not None else _align_nested(middle, other, levels)
    ends = np.arange(-tail, 0)
    return (
        np.concatenate((np.arange(head), middle_left + head, ends + len(left))),
        np.concatenate((np.arange(head), middle_right + head, ends + len(right))),
    )


def count_same(left: I4, right: I4) -> int:
    """Length of the common prefix of two arrays of equal length."""
    same = left == right
    return len(same) if same.all() else int(np.argmin(same))


def _fewest_edits(left: I4, right: I4, most: int) -> tuple[I8, I8] | None:
    """Positions of the longest common subsequence; None if there are too many edits.

    On diagonal k (position in `left` minus position in `right`), `reach[k]` is how far `left` gets with a given number
    of edits. The loop is over edits and diagonals only: runs of equal names are skipped at once.
    """
    if not len(left) or not len(right):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    if abs(len(left) - len(right)) > most:
        return None
    same_until = _diagonals(left, right)
    reach = {1: 0}
    history = []
    for edits in range(min(most, len(left) + len(right)) + 1):
        history.append(dict(reach))
        for diagonal in range(-edits, edits + 1, 2):
            at = _entry(reach, diagonal, edits)
            if 0 <= at <= len(left) and 0 <= at - diagonal <= len(right):
                at = same_until(diagonal, at)
            reach[diagonal] = at
            if at >= len(left) and at - diagonal >= len(right):
                return _trace_back(history, diagonal, at)
    return None


def _align_nested(left: Calls, right: Calls, levels: int) -> tuple[I8, I8]:
    """Matches the outermost calls first, then what each of them calls."""
    outer, other = left.outermost, right.outermost
    if not levels or (len(outer) == len(left) and len(other) == len(right)):
        return _same_context(left.name, right.name)
    one, two = align(left.flat(outer), right.flat(other), levels)
    outer, other = outer[one], other[two]
    same = _same_inside(left, right, outer, other)
    lefts, rights = [outer, _inside(left, outer[same])], [other, _inside(right, other[same])]
    for begin, begun in zip(outer[~same].tolist(), other[~same].tolist(), strict=True):
        inner, inmost = (
            calls.part(at + 1, at + 1 + int(calls.inside[at])) for calls, at in ((left, begin), (right, begun))
        )
        one, two = align(inner, inmost, levels - 1)
        lefts.append(one + begin + 1)
        rights.append(two + begun + 1)
    positions = np.concatenate(lefts)
    order = np.argsort(positions)
    return positions[order], np.concatenate(rights)[order]


def _same_inside(left: Calls, right: Calls, outer: I8, other: I8) -> Mask:
    """Which pairs of calls call the same, name by name."""
    same = left.inside[outer] == right.inside[other]
    sizes = left.inside[outer[same]]
    differ = left.name[_inside(left, outer[same])] != right.name[_inside(right, other[same])]
    before = np.append(0, np.cumsum(differ))
    ends = np.cumsum(sizes)
    same[same] = before[ends] == before[ends - sizes]
    return np.asarray(same)


def _inside(calls: Calls, outer: I8) -> I8:
    """Positions of all calls that these calls contain, in order."""
    sizes = calls.inside[outer]
    return np.arange(sizes.sum()) + np.repeat(outer + 1 - np.cumsum(sizes) + sizes, sizes)


def _same_context(left: I4, right: I4) -> tuple[I8, I8]:
    """Positions where both sides have the same name and the same names after it, for the same time, in one order."""
    context = np.concatenate((left, [-1], right)).astype(np.int64)  # -1 ends the left side
    for distance in _CONTEXT:
        following = np.append(context[distance:], np.full(min(distance, len(context)), -1))[: len(context)]
        context = np.unique(np.stack((context, following)), axis=1, return_inverse=True)[1].reshape(-1)
    _, one, other = np.intersect1d(
        _occurrences(context[: len(left)]), _occurrences(context[len(left) + 1 :]), True, return_indices=True
    )
    order = np.argsort(one)
    one, other = one[order], other[order]
    kept = _longest_rise(other)
    return one[kept], other[kept]


def _occurrences(codes: I8) -> I8:
    """A number for each code and how often it occurred before; all differ."""
    order = np.argsort(codes, kind="stable")
    first = np.searchsorted(codes[order], codes[order])
    out = np.empty(len(codes), np.int64)
    out[order] = (codes[order] << 32) + np.arange(len(codes)) - first
    return out


def _longest_rise(values: I8) -> I8:
    """Positions of the longest rising subsequence of distinct values."""
    ends: list[int] = []  # the smallest last value of a rise of each length
    length = []
    for value in values.tolist():
        place = bisect_left(ends, value)
        ends[place : place + 1] = [value]
        length.append(place)
    kept, wanted = [], len(ends) - 1
    for position in range(len(length) - 1, -1, -1):
        if length[position] == wanted:
            kept.append(position)
            wanted -= 1
    return np.array(kept[::-1], np.int64)


def _comes_from(reach: dict[int, int], diagonal: int, edits: int) -> int:
    """The diagonal before the last edit: above if it left out a name of `right`, below if it left out one of `left`."""
    if diagonal == -edits or (diagonal != edits and reach[diagonal - 1] < reach[diagonal + 1]):
        return diagonal + 1
    return diagonal - 1


def _entry(reach: dict[int, int], diagonal: int, edits: int) -> int:
    """The position in `left` at which a diagonal is entered."""
    before = _comes_from(reach, diagonal, edits)
    return reach[before] + (before < diagonal)


def _diagonals(left: I4, right: I4) -> Callable[[int, int], int]:
    """A function of a diagonal and a position in `left` that returns the next position where the two sides differ."""
    differences: dict[int, I8] = {}

    def same_until(diagonal: int, at: int) -> int:
        found = differences.get(diagonal)
        if found is None:
            first, last = max(0, diagonal), min(len(left), len(right) + diagonal)
            differing = left[first:last] != right[first - diagonal : last - diagonal]
            found = differences[diagonal] = np.append(np.flatnonzero(differing) + first, last)
        return int(found[np.searchsorted(found, at)]) if at < found[-1] else at

    return same_until


def _trace_back(history: list[dict[int, int]], diagonal: int, at: int) -> tuple[I8, I8]:
    left, right = [], []
    for edits in range(len(history) - 1, -1, -1):
        reach = history[edits]
        matched = np.arange(_entry(reach, diagonal, edits) if edits else 0, at)
        left.append(matched)
        right.append(matched - diagonal)
        if edits:
            diagonal = _comes_from(reach, diagonal, edits)
            at = reach[diagonal]
    return np.concatenate(left[::-1]), np.concatenate(right[::-1])
