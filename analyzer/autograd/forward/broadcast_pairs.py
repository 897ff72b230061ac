"""Distances and products of all pairs of vectors that are computed through a tensor with a vector for each pair."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from math import prod
from typing import Literal

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.autograd.operator_inputs import Shape, arguments_of, forward_calls, nodes_of, shapes_of
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import op_names

Kind = Literal["squared", "euclidean", "manhattan", "product", "cosine"]

LEAST_GROWTH = 4  # the tensor of all pairs has at least so many times the elements of each side
NEAR = 4  # operators before the first one, among which an expansion of its inputs is looked for
# Operators that take both sides and compute the whole result.
_WHOLE: dict[str, Kind] = {"aten::pairwise_distance": "euclidean", "aten::cosine_similarity": "cosine"}
_DIFFERENCE, _PRODUCT = "aten::sub", "aten::mul"
_SUMS = ("aten::sum", "aten::mean")
_NORMS = ("aten::norm", "aten::linalg_vector_norm", "aten::linalg_norm")
_OF_ORDER: dict[str, Kind] = {"": "euclidean", "2": "euclidean", "2.": "euclidean", "1": "manhattan", "1.": "manhattan"}


class AllPairs(Struct, frozen=True):
    """What is computed of all pairs, through a tensor of `shape`, whose last size is that of a vector. `rows` are the
    forward operators and `nodes` those of their backward pass: slices in order.
    """

    kind: Kind
    shape: Shape
    rows: I8
    nodes: I8


class _Calls(Struct, frozen=True):
    """The outermost operators of the forward passes, in order of time."""

    rows: I8
    names: Sequence[str]  # without the "_" of operators that work in place
    shapes: Sequence[Sequence[Shape]]
    arguments: Sequence[Sequence[str]]
    step: Sequence[int]


def find_broadcast_pairs(regions: Regions, steps: Steps) -> tuple[AllPairs, ...]:
    """Only sure matches: an operator broadcasts two sides, the next ones that take a tensor of this shape square it or
    take its absolute value, and sum it over the vectors. Nothing else takes a tensor of this shape until the next one
    is made, so that nothing needs the vectors of the pairs themselves.
    """
    rows = forward_calls(regions, steps, lambda name: name not in op_names.MOVES or name in op_names.EXPANSIONS)
    if not _may_make_pairs(regions, rows):
        return ()
    calls = _calls(regions, steps, rows)
    made = [_made(calls, at) for at in range(len(calls.rows))]
    users: dict[tuple[int, Shape], list[int]] = defaultdict(list)
    for at, (step, shapes) in enumerate(zip(calls.step, calls.shapes, strict=True)):
        for one in {one for one in (*shapes, made[at]) if one}:
            users[step, one].append(at)
    found: list[tuple[Kind, Shape, I8]] = []
    for at, shape in [(at, shape) for at, shape in enumerate(made) if shape is not None]:
        mine = users[calls.step[at], shape]
        following = mine[bisect_right(mine, at) :]
        end = next((i for i, other in enumerate(following) if made[other] == shape), len(following))
        if (kind := _kind(calls, at, shape, following[:end])) is not None:
            found.append((kind, shape, calls.rows[[at, *following[:end]]]))
    if not found:
        return ()
    rows = distinct_values(np.concatenate([chain for _, _, chain in found]))
    nodes, of = nodes_of(regions, rows)
    return tuple(AllPairs(kind, shape, chain, nodes[np.isin(rows[of], chain)]) for kind, shape, chain in found)


def _calls(regions: Regions, steps: Steps, rows: I8) -> _Calls:
    names = [regions.trace.names[code].removesuffix("_") for code in regions.slices.name[rows].tolist()]
    step = steps.host_step_of(regions.slices.start[rows]).tolist()
    return _Calls(rows, names, shapes_of(regions, rows), arguments_of(regions, rows), step)


def _may_make_pairs(regions: Regions, rows: I8) -> bool:
    """Whether to look closer, for most traces have no such operator: a cheap test for one that broadcasts so much, or
    takes two tensors of the same shape right after an expansion.
    """
    at = np.flatnonzero(regions.named(_makes_pairs, OP)[rows])
    expanded = np.append(0, np.cumsum(regions.named(op_names.EXPANSIONS.__contains__, OP)[rows]))
    follows = expanded[at] > expanded[np.maximum(at - NEAR, 0)]
    return any(
        _of_pairs(shapes) is not None and (follow or not _are_same(shapes))
        for shapes, follow in zip(shapes_of(regions, rows[at]), follows.tolist(), strict=True)
    )


def _makes_pairs(name: str) -> bool:
    return name in _WHOLE or name in (_DIFFERENCE, _PRODUCT)


def _are_same(shapes: Sequence[Shape]) -> bool:
    return shapes[0] == shapes[1]


def _of_pairs(shapes: Sequence[Shape]) -> Shape | None:
    """What two sides broadcast to, if each is much smaller or they have the same shape of three dimensions or more."""
    if len(shapes) < 2 or not all(shapes[:2]) or shapes[0][-1] != shapes[1][-1] or shapes[0][-1] < 2:
        return None
    size = max(map(len, shapes[:2]))
    padded = [(1,) * (size - len(side)) + side for side in shapes[:2]]
    shape = tuple(map(max, *padded))
    is_larger = all(LEAST_GROWTH * prod(side) <= prod(shape) for side in padded)
    return shape if size > 2 and (is_larger or _are_same(shapes)) else None


def _made(calls: _Calls, at: int) -> Shape | None:
    """The shape of all pairs, if the operator makes them of two sides: it broadcasts, or takes what was expanded."""
    shape = _of_pairs(calls.shapes[at]) if _makes_pairs(calls.names[at]) else None
    if shape is None or not _are_same(calls.shapes[at]):
        return shape
    return shape if _were_expanded(calls, at, shape) else None


def _were_expanded(calls: _Calls, at: int, shape: Shape) -> bool:
    """Whether both sides of this shape were much smaller before they were expanded or repeated."""
    nearby = range(max(0, at - NEAR), at)
    given = [calls.shapes[one][0] for one in nearby if calls.names[one] in op_names.EXPANSIONS and calls.shapes[one]]
    return sum(_expands(before, shape) for before in given) >= 2


def _expands(before: Shape, shape: Shape) -> bool:
    fits = len(before) == len(shape) and all(size in (1, whole) for size, whole in zip(before, shape, strict=True))
    return fits and LEAST_GROWTH * prod(before) <= prod(shape)


def _kind(calls: _Calls, first: int, shape: Shape, users: Sequence[int]) -> Kind | None:
    """What these operators compute of each pair; None if not one of the kinds, or if they keep the vectors."""
    name = calls.names[first]
    if name in _WHOLE:
        return None if users else _WHOLE[name]
    if not users or not _reduces(calls, users[-1], shape):
        return None
    *middle, last = (at for at in users if not _scales(calls, at, shape))
    if calls.names[last] in _NORMS:
        kind = _OF_ORDER.get(calls.arguments[last][1])
        return kind if name == _DIFFERENCE and not middle else None
    if name == _PRODUCT:
        return None if middle else "product"
    if len(middle) != 1:
        return None
    return _of_elements(calls, middle[0], shape)


def _scales(calls: _Calls, at: int, shape: Shape) -> bool:
    """Whether an operator multiplies or divides the vectors by a number or a vector, as could be done before."""
    others = [prod(one) for one in calls.shapes[at] if one != shape]
    is_small = calls.shapes[at].count(shape) == 1 and max(others, default=1) <= shape[-1]
    return calls.names[at] in (_PRODUCT, "aten::div") and is_small


def _of_elements(calls: _Calls, at: int, shape: Shape) -> Kind | None:
    name, arguments = calls.names[at], calls.arguments[at]
    if name == "aten::abs":
        return "manhattan"
    squares = name == "aten::square" or (name == "aten::pow" and arguments[1:2] == ["2"])
    squares |= name == _PRODUCT and list(calls.shapes[at][:2]) == [shape, shape]
    return "squared" if squares else None


def _reduces(calls: _Calls, at: int, shape: Shape) -> bool:
    """Whether an operator reduces the last dimension alone."""
    place = 2 if calls.names[at] in _NORMS else 1 if calls.names[at] in _SUMS else None
    last = ("[-1]", f"[{len(shape) - 1}]")
    return place is not None and len(calls.arguments[at]) > place and calls.arguments[at][place] in last
