"""Matmuls that multiply a one-hot matrix by a parameter, which picks rows of the parameter."""

from __future__ import annotations

from math import prod

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.autograd.nodes import ACCUMULATE
from traceopt.analyzer.autograd.operator_inputs import Shape, of_inputs, tensors
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.vocabulary.gemm_ops import gemm_shape, is_gemm

ONE_HOT = "aten::one_hot"


class OneHotProducts(Struct, frozen=True):
    """Slices: `one_hot` and `product`, the operator that the script calls (aten::linear), have shape (len,). `rows` is
    all that an embedding makes unnecessary: these, the casts between them, and the matmuls of the gradients.
    """

    one_hot: I8
    product: I8
    classes: I8  # columns of the one-hot matrix, shape (len,)
    rows: I8

    def __len__(self) -> int:
        return len(self.product)


def find_one_hot_products(regions: Regions, steps: Steps) -> OneHotProducts:
    """Only sure matches. After `aten::one_hot`, only products, casts, copies, views and other one-hot matrices come
    before a product with a factor of this size. That factor has no gradient, but the other one is a parameter: the
    backward pass computes its gradient in one matmul and accumulates it. No operator of the forward pass takes two
    tensors of the size of the one-hot matrix, as losses do: else the matrix may be their target, and the product that
    of other data.
    """
    slices = regions.slices
    one_hot, shapes = one_hot_calls(regions, steps)
    if not len(one_hot):
        return OneHotProducts(one_hot, one_hot, one_hot, one_hot)
    outer = slices.mask(slices.outermost(slices.kind == OP))
    moves = outer & regions.named(op_names.MOVES.__contains__, OP)
    multiplies = regions.named(op_names.PRODUCT_CALLS.__contains__, OP)
    products = np.flatnonzero(outer & multiplies)
    other = slices.next_outermost(one_hot, outer & ~moves & ~multiplies & ~regions.named(ONE_HOT.__eq__, OP))
    other = np.where(other < 0, len(slices), other)
    following = np.searchsorted(products, [one_hot, other]).T.tolist()
    gemms = _Gemms.of(regions)

    step = steps.host_step_of(slices.start[one_hot])
    partners = _pairs_of_one_shape(regions, steps, outer & ~moves & ~multiplies)
    accumulated = _accumulated(regions, steps)
    product = np.full(len(one_hot), -1, np.int64)
    gradient = np.full(len(one_hot), -1, np.int64)
    for i, (at, shape) in enumerate(zip(step.tolist(), shapes, strict=True)):  # few calls a step
        count, columns = prod(shape[:-1]), shape[-1]
        if (at, count * columns) in partners:
            continue
        for row in products[slice(*following[i])].tolist():
            found = None if row in product else gemms.gradient_of(regions, row, count, columns)
            if found is not None and (at, *sorted((columns, found[1]))) in accumulated:
                product[i], gradient[i] = row, found[0]
                break
    kept = gradient >= 0
    one_hot, product, gradient = one_hot[kept], product[kept], gradient[kept]
    shapes = [shape for shape, keep in zip(shapes, kept.tolist(), strict=True) if keep]
    casts = _casts(regions, np.flatnonzero(moves), one_hot, product, shapes)
    classes = np.array([shape[-1] for shape in shapes], np.int64)
    return OneHotProducts(
        one_hot, product, classes, distinct_values(np.concatenate([one_hot, casts, product, gradient]))
    )


def _casts(regions: Regions, moves: I8, one_hot: I8, product: I8, shapes: list[Shape]) -> I8:
    """The moves of tensors of a one-hot matrix's size between its call and its product."""
    call = np.searchsorted(one_hot, moves) - 1
    between = np.flatnonzero(call >= 0)
    between = between[moves[between] < product[call[between]]]
    moved = of_inputs(regions, moves[between], lambda _name, dims, _types: prod(next(iter(tensors(dims)), (0,))))
    same = [size == prod(shapes[at]) for size, at in zip(moved, call[between].tolist(), strict=True)]
    casts: I8 = moves[between[np.array(same, bool)]].astype(np.int64)
    return casts


def one_hot_calls(regions: Regions, steps: Steps) -> tuple[I8, list[Shape]]:
    """The calls of the forward passes, and the shape of each result. It is the shape of the tensor that they fill."""
    slices = regions.slices
    wanted = regions.named(ONE_HOT.__eq__, OP) & (slices.thread == steps.thread)
    wanted &= steps.host_window.contains(slices.start) & (slices.nearest(regions.backward) < 0)
    writes = np.flatnonzero(regions.named("aten::scatter_".__eq__, OP)) if wanted.any() else np.empty(0, np.int64)
    call = slices.ancestor(writes, wanted)
    writes, call = writes[call >= 0], call[call >= 0]
    written = of_inputs(regions, writes, lambda _name, dims, _types: next(iter(tensors(dims)), ()))
    sized = [len(shape) > 1 for shape in written]
    return call[sized].astype(np.int64), [shape for shape in written if len(shape) > 1]


class _Gemms(Struct, frozen=True):
    """The matmuls of known shape, and the backward nodes, in order of their slices."""

    rows: I8
    shapes: list[tuple[int, int, int, int]]  # M, N, K, batch
    nodes: I8

    @classmethod
    def of(cls, regions: Regions) -> _Gemms:
        rows = np.flatnonzero(regions.named(is_gemm, OP))
        shapes = of_inputs(regions, rows, gemm_shape)
        known = [shape is not None for shape in shapes]
        nodes = np.flatnonzero(regions.backward & (regions.slices.kind == OP))
        return cls(rows[known].astype(np.int64), [shape for shape in shapes if shape is not None], nodes)

    def inside(self, regions: Regions, row: int) -> range:
        """The places of those inside a slice."""
        last = row + int(regions.slices.enclosed(np.array([row]))[0])
        return range(*np.searchsorted(self.rows, [row, last + 1]).tolist())

    def gradient_of(self, regions: Regions, product: int, count: int, classes: int) -> tuple[int, int] | None:
        """The matmul of the backward pass for the gradient of the other factor, and the width of that factor, if the
        product has a left factor of this size which has no gradient.
        """
        slices, ops = regions.slices, regions.trace.ops
        for place in self.inside(regions, product):
            m, width, inner, batch = self.shapes[place]
            number = ops.sequence[slices.row[self.rows[place]]]
            if (m * batch, inner) != (count, classes) or number < 0:
                continue
            nodes = self.nodes[ops.sequence[slices.row[self.nodes]] == number]
            nodes = nodes[slices.start[nodes] > slices.start[product]]
            matmuls = [again for node in nodes[:1].tolist() for again in self.inside(regions, node)]
            if len(matmuls) == 1:
                rows, columns, summed, _ = self.shapes[matmuls[0]]
                if summed == count and {rows, columns} == {classes, width}:
                    return int(self.rows[matmuls[0]]), width
        return None


def _accumulated(regions: Regions, steps: Steps) -> set[tuple[int, int, int]]:
    """The step and the two sizes, in order, of each matrix whose gradient is accumulated."""
    rows = np.flatnonzero(regions.named(ACCUMULATE.__eq__, OP))
    shapes = of_inputs(regions, rows, lambda _name, dims, _types: next(iter(tensors(dims)), ()))
    step = steps.host_step_of(regions.slices.start[rows]).tolist()
    return {(at, min(one), max(one)) for at, one in zip(step, shapes, strict=True) if len(one) == 2}


def _pairs_of_one_shape(regions: Regions, steps: Steps, mask: Mask) -> set[tuple[int, int]]:
    """The step and the number of elements of the tensors of one shape that an operator of the forward pass takes."""
    rows = np.flatnonzero(mask & (regions.slices.nearest(regions.backward) < 0) & ~regions.updates)
    shapes = of_inputs(regions, rows, lambda _name, dims, _types: _repeated(tensors(dims)))
    step = steps.host_step_of(regions.slices.start[rows]).tolist()
    return {(at, prod(one)) for at, one in zip(step, shapes, strict=True) if one}


def _repeated(shapes: list[Shape]) -> Shape | None:
    return next((shape for shape in shapes if len(shape) > 1 and shapes.count(shape) > 1), None)
