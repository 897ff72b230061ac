"""The operators of the training with the sizes of the tensors that they work on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import group_rows
from traceopt.analyzer.tables.json_values import listed
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.vocabulary.gemm_ops import gemm_shape, is_gemm

Shape = tuple[int, ...]


class Sizes(Struct, frozen=True):
    """Calls of an operator with the same sizes: the shapes of its inputs, also of those in lists, and of the result of
    a matmul.
    """

    name: str
    shapes: tuple[Shape, ...]


class SizedCalls(Struct, frozen=True):
    """Operators of the training thread and of its backward pass, in the window, whose sizes were recorded. `rows` are
    slices, in order; `group` is the row of each in `sizes`. `computes`: a matmul or a convolution, or it calls no other
    operator.
    """

    rows: I8
    group: I8
    computes: Mask
    sizes: tuple[Sizes, ...]

    def of_each(self, value: Callable[[Sizes], float]) -> npt.NDArray[np.float64]:
        """A value of each call that follows from its sizes. Shape (len(rows),)."""
        values = np.array([value(size) for size in self.sizes] or [0.0], np.float64)
        return np.asarray(values[self.group])


def find_sized_calls(regions: Regions, steps: Steps) -> SizedCalls:
    trace, slices = regions.trace, regions.slices
    mine = (slices.thread == steps.thread) | (slices.nearest(regions.backward) >= 0)
    calls = (slices.kind == OP) & mine & steps.host_window.contains(slices.start)
    rows = np.flatnonzero(calls)
    rows = rows[trace.ops.dims[slices.row[rows]] >= 0].astype(np.int64)
    if not len(rows):
        return SizedCalls(rows, rows, np.empty(0, bool), ())
    products = regions.named(is_product, OP)
    callers = slices.mask(slices.parent[calls & (slices.parent >= 0)])
    computing = slices.mask(slices.outermost(calls & (products | ~callers)))
    ops = slices.row[rows]
    first, group = group_rows(trace.ops.name[ops], trace.ops.dims[ops])
    names, dims = (column[ops[first]].tolist() for column in (trace.ops.name, trace.ops.dims))
    sizes = tuple(_sizes(trace.names[name], trace.texts[text]) for name, text in zip(names, dims, strict=True))
    return SizedCalls(rows, group.astype(np.int64), computing[rows], sizes)


def is_product(name: str) -> bool:
    """A matmul or a convolution."""
    return is_gemm(name) or name in op_names.CONVOLUTION_OPS


def _sizes(name: str, dims: str) -> Sizes:
    inputs = listed(dims) or []
    product = gemm_shape(name, inputs)
    result = () if product is None else (product[:2] if product[3] == 1 else (product[3], *product[:2]),)
    return Sizes(name, (*_tensors(inputs), *result))


def _tensors(inputs: list[Any]) -> Iterator[Shape]:
    for one in inputs:
        if isinstance(one, list) and one:
            if all(type(size) is int for size in one):
                yield tuple(one)
            else:
                yield from _tensors(one)


def elements(shapes: tuple[Shape, ...]) -> int:
    """Numbers in all of these tensors."""
    return sum(map(prod, shapes))
