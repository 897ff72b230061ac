"""Losses that multiply log-probabilities by a matrix made of class ids, which picks the number of each target."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import prod

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.autograd.forward.one_hot_products import one_hot_calls
from traceopt.analyzer.autograd.operator_inputs import Shape, arguments_of, forward_calls, nodes_of, shapes_of
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary.formulas.byte_formulas import is_pointwise

_LOG_SOFTMAX = ("aten::log_softmax", "aten::_log_softmax")
_PROBABILITIES = ("aten::softmax", "aten::_softmax", "aten::sigmoid")  # soft targets, or weights of another loss
_SUMS = ("aten::sum", "aten::mean")
_PRODUCTS = ("aten::mul", "aten::kl_div")
_WRITES = ("aten::scatter_", "aten::scatter")
_CONSTANTS = ("aten::fill_", "aten::zero_")
_ZERO = ("0", "0.", "0.0", "False")
_COPIES = ("aten::to", "aten::type_as", "aten::clone")
_ADDS = ("aten::add", "aten::add_")
_MAKING = (*_CONSTANTS, *_WRITES, *_COPIES, "aten::index_fill_", "aten::masked_fill_")


class OneHotLosses(Struct, frozen=True):
    """Slices in order. `products` multiply log-probabilities by the matrix. `rows`: these, what makes the matrix, what
    else is computed in its size after the log-softmax, and the nodes of all that. `classes` is its number of columns.

    `smoothed`: other classes than the target have a probability, too. Cross entropy then sums each row, which takes as
    long as one matrix, its product and their sum. So `rows` are only copies, and the logarithms of KL divergences.
    """

    products: I8
    rows: I8
    classes: int
    smoothed: bool

    def __len__(self) -> int:
        return len(self.products)


class _Matrix(Struct, frozen=True):
    """`first`, `last`: the places of the calls that make it. `smoothed`: they fill it with another number than 0."""

    first: int
    last: int
    shape: Shape
    smoothed: bool


def find_one_hot_losses(regions: Regions, steps: Steps) -> OneHotLosses:
    """Only sure matches: after such a matrix and a log-softmax of its size, the step multiplies two tensors of that
    size, and it has no other probabilities of that size which may be the factor.
    """
    none = np.empty(0, np.int64)
    if not regions.named((*_WRITES, "aten::one_hot").__contains__, OP).any():
        return OneHotLosses(none, none, 0, smoothed=False)
    calls = forward_calls(regions, steps, lambda _name: True)
    names = [regions.trace.names[code] for code in regions.slices.name[calls].tolist()]
    step = steps.host_step_of(regions.slices.start[calls]).tolist()
    shapes = shapes_of(regions, calls)
    sizes = [[prod(shape) for shape in of_call if shape] for of_call in shapes]
    users: dict[tuple[int, int], list[int]] = defaultdict(list)
    for at, (number, mine) in enumerate(zip(step, sizes, strict=True)):
        for size in set(mine):
            users[number, size].append(at)
    matrices = [*_one_hot(regions, steps, calls), *_scattered(regions, calls, names, shapes, step, users)]
    products: list[int] = []
    rows: list[int] = []
    divergences: list[int] = []
    classes, smoothed = 0, False
    for matrix in matrices:
        size = prod(matrix.shape)
        mine = users[step[matrix.last], size]
        log = next((at for at in mine if names[at] in _LOG_SOFTMAX), None)
        if log is None or any(names[at] in _PROBABILITIES for at in mine):
            continue
        later = [at for at in mine if at > max(log, matrix.last)]
        found = [at for at in later if sizes[at][:2] == [size] * 2 and names[at] in _PRODUCTS]
        found = [at for at in found if arguments_of(regions, calls[at : at + 1])[0][3:4] != ["True"]]  # of kl_div
        if not found:
            continue
        between = [at for at in mine if matrix.first <= at < found[0]]
        classes = matrix.shape[-1]
        products += found
        if matrix.smoothed or any(names[at] in _ADDS and sizes[at] == [size] for at in between):
            smoothed = True
            rows += [at for at in between if names[at] in _COPIES]
            divergences += [at for at in found if names[at] == "aten::kl_div"]
        else:
            rows += [matrix.first, matrix.last, *found]
            rows += [at for at in later if is_pointwise(names[at]) or names[at] in _SUMS]
            rows += [at for at in between if names[at] in _MAKING]
    forward = np.union1d(calls[rows], _beyond_the_sum(regions, calls[divergences])) if products else none
    nodes, _ = nodes_of(regions, forward)
    return OneHotLosses(distinct_values(calls[products]), np.union1d(forward, nodes), classes, smoothed)


def _beyond_the_sum(regions: Regions, divergences: I8) -> I8:
    """What KL divergences compute beside the sum of products."""
    kept = regions.named(("aten::mul", *_SUMS).__contains__, OP)
    inner = np.flatnonzero(np.isin(regions.slices.parent, divergences))
    return inner[~kept[inner]].astype(np.int64)


def _one_hot(regions: Regions, steps: Steps, calls: I8) -> list[_Matrix]:
    rows, shapes = one_hot_calls(regions, steps)
    places = np.searchsorted(calls, rows).tolist()
    return [_Matrix(place, place, shape, smoothed=False) for place, shape in zip(places, shapes, strict=True)]


def _scattered(
    regions: Regions,
    calls: I8,
    names: Sequence[str],
    shapes: Sequence[list[Shape]],
    step: Sequence[int],
    users: dict[tuple[int, int], list[int]],
) -> list[_Matrix]:
    """Matrices that are filled with one number and then get another one in each row, with nothing in between."""
    fills = np.flatnonzero(regions.named(_CONSTANTS.__contains__, OP))
    filled = [next(iter(of_fill), ()) for of_fill in shapes_of(regions, fills)]
    place = (np.searchsorted(calls, fills, side="right") - 1).tolist()
    found = []
    for at, name in enumerate(names):
        if name not in _WRITES or len(shapes[at]) < 3 or not _one_in_each_row(shapes[at][0], shapes[at][2]):
            continue
        shape = shapes[at][0]
        mine = users[step[at], prod(shape)]
        before = mine[: mine.index(at)]
        fill = int(np.searchsorted(fills, calls[at])) - 1
        if fill < 0 or filled[fill] != shape or (before and place[fill] < before[-1]):
            continue
        first = place[fill]
        if before[-2:-1] and before[-1] == first and names[before[-2]] == "aten::clone":
            first = before[-2]  # a copy that only gives the size
        value = arguments_of(regions, fills[fill : fill + 1])[0][1:]
        found.append(_Matrix(first, at, shape, smoothed=bool(value) and value[0] not in _ZERO))
    return found


def _one_in_each_row(matrix: Shape, index: Shape) -> bool:
    return len(matrix) > 1 and matrix[-1] > 1 and index == (*matrix[:-1], 1)
