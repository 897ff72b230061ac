"""Losses that multiply log-probabilities by a one-hot matrix, which picks the number of each target."""

from __future__ import annotations

from collections import defaultdict
from math import prod

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.autograd.forward.one_hot_products import one_hot_calls
from traceopt.analyzer.autograd.operator_inputs import forward_calls, nodes_of, shapes_of
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary.formulas.byte_formulas import is_pointwise

_LOG_SOFTMAX = ("aten::log_softmax", "aten::_log_softmax")
_PROBABILITIES = ("aten::softmax", "aten::_softmax", "aten::sigmoid")  # soft targets, or weights of another loss
_SUMS = ("aten::sum", "aten::mean")
_CASTS = ("aten::to", "aten::type_as")


class OneHotLosses(Struct, frozen=True):
    """Slices in order. `products` multiply log-probabilities by the matrix. `rows`: these, the matrix, its casts, what
    else is computed in its size after the log-softmax, and the nodes of all that. `classes` is its number of columns.
    """

    products: I8
    rows: I8
    classes: int

    def __len__(self) -> int:
        return len(self.products)


def find_one_hot_losses(regions: Regions, steps: Steps) -> OneHotLosses:
    """Only sure matches: after a one-hot matrix and a log-softmax of its size, the step multiplies two tensors of that
    size, and it has no other probabilities of that size which may be the factor.
    """
    one_hot, shapes = one_hot_calls(regions, steps)
    if not len(one_hot):
        return OneHotLosses(one_hot, one_hot, 0)
    calls = forward_calls(regions, steps, lambda _name: True)
    names = [regions.trace.names[code] for code in regions.slices.name[calls].tolist()]
    step = steps.host_step_of(regions.slices.start[calls]).tolist()
    sizes = [[prod(shape) for shape in of_call if shape] for of_call in shapes_of(regions, calls)]
    users: dict[tuple[int, int], list[int]] = defaultdict(list)
    for at, (number, mine) in enumerate(zip(step, sizes, strict=True)):
        for size in set(mine):
            users[number, size].append(at)
    of_matrix = steps.host_step_of(regions.slices.start[one_hot]).tolist()
    matrices = {
        (number, prod(shape)): row for number, shape, row in zip(of_matrix, shapes, one_hot.tolist(), strict=True)
    }
    products: list[int] = []
    rows: list[int] = []
    for key, matrix in matrices.items():
        mine = users[key]
        log = next((at for at in mine if names[at] in _LOG_SOFTMAX), None)
        if log is None or any(names[at] in _PROBABILITIES for at in mine):
            continue
        made = int(np.searchsorted(calls, matrix))
        later = [at for at in mine if at > max(log, made)]
        found = [at for at in later if names[at] == "aten::mul" and sizes[at][:2] == [key[1]] * 2]
        if found:
            products += found
            rows += [made, *(at for at in later if is_pointwise(names[at]) or names[at] in _SUMS)]
            rows += [at for at in mine if made < at < found[0] and names[at] in _CASTS]
    forward = distinct_values(calls[rows]) if rows else one_hot[:0]
    nodes, _ = nodes_of(regions, forward)
    return OneHotLosses(distinct_values(calls[products]), np.union1d(forward, nodes), shapes[0][-1])
