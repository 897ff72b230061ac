"""The operators of a CPU-only run that compute with tensors full of subnormal numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.run_log.tensor_values import Subnormals, SubnormalTensors
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.work.cpu_work import CpuWork
from traceopt.analyzer.work.sizes.sized_calls import Shape, SizedCalls, Sizes, elements, is_product

_BYTES = 4  # of a number
_LEAST_SLOWDOWN = 2.0  # of a multiplication: some CPUs compute with these numbers almost as fast as with others
_LEAST_NS = 50_000  # of an operator: a shorter one may take as long for its call


class SubnormalWork(Struct, frozen=True):
    """Operators with a tensor of the shape of one with such numbers. `rows` are slices, in order; `is_product`: matmuls
    and convolutions.

    `slower`: how many times as long each takes as with zeros instead, if it is slowed as much as a multiplication of a
    copy of the numbers. Matmuls are slowed more. `least_ns`: what it takes at the rates that were measured on this CPU;
    0 if they were not.
    """

    rows: I8
    slower: npt.NDArray[np.float64]
    least_ns: npt.NDArray[np.float64]
    is_product: npt.NDArray[np.bool_]


def find_subnormal_work(calls: SizedCalls, work: CpuWork, subnormals: Subnormals | None) -> SubnormalWork:
    known: dict[Shape, SubnormalTensors] = {}
    tensors = subnormals.tensors if subnormals is not None else ()
    for one in (tensor for tensor in tensors if tensor.slowdown >= _LEAST_SLOWDOWN):
        for shape in (one.shape, (*one.shape[:-2], *reversed(one.shape[-2:]))):
            if shape not in known or known[shape].slowdown < one.slowdown:
                known[shape] = one
    slower = calls.of_each(lambda sizes: _slower(sizes, known))
    slices = work.regions.slices
    long = slices.end[calls.rows] - slices.start[calls.rows] >= _LEAST_NS
    found = np.flatnonzero(calls.computes & long & (slower > 1))
    rows = calls.rows[found]
    counted, peaks = work.flops.counted, work.peaks
    flops = np.zeros(len(slices))
    flops[counted.slices] = counted.executed
    least_ns = flops[rows] / ((peaks.matmul.get("fp32") if peaks is not None else None) or np.inf)
    if peaks is not None and peaks.copy_gb_per_s:
        moved = calls.of_each(lambda sizes: _BYTES * elements(sizes.shapes))[found]
        least_ns = np.maximum(least_ns, moved / peaks.copy_gb_per_s)
    products = calls.of_each(lambda sizes: is_product(sizes.name))[found] > 0
    return SubnormalWork(rows, slower[found], least_ns, products)


def _slower(sizes: Sizes, known: dict[Shape, SubnormalTensors]) -> float:
    """1 if no tensor is one of these. Of the tensors that an optimizer updates at once only some may be."""
    mine = tuple(shape for shape in sizes.shapes if shape in known)
    if not mine:
        return 1.0
    share = 1.0 if is_product(sizes.name) else elements(mine) / max(1, elements(sizes.shapes))
    return 1 + share * (max(known[shape].slowdown for shape in mine) - 1)
