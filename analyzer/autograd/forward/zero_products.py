"""Matmuls of the forward pass with a matrix that is almost all zero, as `traceopt run` saw it."""

from __future__ import annotations

from math import prod

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.autograd.operator_inputs import Shape, forward_calls, nodes_of, of_inputs, tensors
from traceopt.analyzer.run_log.tensor_values import MostlyZero
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import op_names


class ZeroProducts(Struct, frozen=True):
    """Slices in order: the matmuls and their backward nodes. `used`: the share of the elements that is not zero, of the
    matrix of each of them.
    """

    products: I8
    rows: I8
    used: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.products)

    def without(self, rows: I8) -> ZeroProducts:
        """Those that are not among these slices."""
        mine = ~np.isin(self.rows, rows)
        return ZeroProducts(np.setdiff1d(self.products, rows), self.rows[mine], self.used[mine])


def find_zero_products(regions: Regions, steps: Steps, matrices: tuple[MostlyZero, ...]) -> ZeroProducts:
    """By the sizes of the matrices: either factor may be one, and it may be transposed or have more dimensions."""
    if not matrices:
        return ZeroProducts(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
    used = {size: one.used_share for one in matrices for size in _sizes(one.shape)}
    calls = forward_calls(regions, steps, op_names.PRODUCT_CALLS.__contains__)

    def share(_name: str, dims: object, _types: object) -> float:
        found = [used[size] for shape in tensors(dims) for size in _sizes(shape)[:1] if size in used]
        return max(found, default=1.0)

    shares = np.array(of_inputs(regions, calls, share), np.float64)
    products, shares = calls[shares < 1], shares[shares < 1]
    nodes, call = nodes_of(regions, products)
    rows = np.concatenate([products, nodes])
    order = np.argsort(rows, kind="stable")
    return ZeroProducts(products, rows[order], np.concatenate([shares, shares[call]])[order])


def _sizes(shape: Shape) -> list[tuple[int, int]]:
    """As a matrix of rows and columns, and transposed."""
    rows, columns = prod(shape[:-1]), prod(shape[-1:])
    return [(rows, columns), (columns, rows)]
