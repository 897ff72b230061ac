"""Casts between floating-point types on the device: tensor, direction, and casts that undo each other."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.tables.json_values import listed
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.work.gemms import Gemms

CAST = "aten::copy_"  # what aten::to and autocast end up calling
FLOATING = frozenset(("fp64", "fp32", "fp16", "bf16", "fp8"))
_CONVOLUTIONS = ("aten::convolution", "aten::_convolution")


class Cast(Struct, frozen=True):
    """One kind of cast. `rows` index the device's work that it launched, inside the window or not."""

    size: tuple[int, ...]
    source: str
    target: str
    rows: I8
    of_weight: bool  # a weight of a matmul or convolution in the trace, or its bias, has this size


class Casts(Struct, frozen=True):
    """All kinds of casts, and the work of those that the next cast reverts."""

    kinds: list[Cast]
    undone: npt.NDArray[np.bool_]  # shape (len(gpu.work),): both casts of each pair


def find_casts(gemms: Gemms) -> Casts:
    """The casts; empty if sizes and types were not recorded."""
    trace, slices, links, gpu = gemms.trace, gemms.slices, gemms.links, gemms.gpu
    ops = trace.ops
    undone = np.zeros(len(gpu.work), bool)
    if CAST not in trace.names or not len(ops):
        return Casts([], undone)
    is_cast = (ops.name == trace.names.index(CAST)) & (ops.dims >= 0) & (ops.types >= 0)
    wanted = slices.mask(slices.of(OP, len(ops))[np.flatnonzero(is_cast)])
    owner = slices.ancestor(links.launch_slice, wanted)
    work = np.flatnonzero((owner >= 0) & gpu.is_kernel)
    row = slices.row[owner[work]]
    keys, group = np.unique(np.stack((ops.dims[row], ops.types[row])), axis=1, return_inverse=True)
    weights = _weights(gemms)
    kinds: list[Cast] = []
    ways = np.full(len(gpu.work), -1, np.int64)
    for index, (dims, types) in enumerate(keys.T.tolist()):  # distinct casts only
        way = _way(listed(trace.texts[dims]), listed(trace.texts[types]))
        if way is None:
            continue
        rows = work[group.reshape(-1) == index]
        ways[rows] = len(kinds)
        kinds.append(Cast(*way, rows, way[0] in weights))
    return Casts(kinds, _undone(gemms, kinds, ways))


def _undone(gemms: Gemms, kinds: list[Cast], ways: I8) -> npt.NDArray[np.bool_]:
    """Adjacent casts on a stream of which the second reverts the first."""
    work = gemms.gpu.work
    back = {(one.size, one.target, one.source): index for index, one in enumerate(kinds)}
    opposite = np.array([back.get((kind.size, kind.source, kind.target), -2) for kind in kinds] or [-2])
    order = np.lexsort((work.start, work.queue))
    first, second = order[:-1], order[1:]
    pair = (ways[first] >= 0) & (ways[second] == opposite[np.maximum(ways[first], 0)])
    pair &= work.queue[first] == work.queue[second]
    out = np.zeros(len(work), bool)
    out[first[pair]] = out[second[pair]] = True
    return out


def _way(dims: Any, types: Any) -> tuple[tuple[int, ...], str, str] | None:
    """Size, source type and target type of a copy that casts; None for other copies."""
    if not isinstance(dims, list) or not isinstance(types, list) or len(dims) < 2 or len(types) < 2:
        return None
    target, source = (op_names.profiler_dtype(str(name)) for name in types[:2])
    size = dims[1]
    if source not in FLOATING or target not in FLOATING or source == target:
        return None
    if not isinstance(size, list) or not all(type(n) is int and n > 0 for n in size):
        return None
    return tuple(size), source, target


def _weights(gemms: Gemms) -> set[tuple[int, ...]]:
    """Sizes that only weights have: N x K of matmuls, unless it is also some M x K, convolution filters, and the biases
    of both.
    """
    plain = [s for s in gemms.shapes if s.batch == 1]
    rows = {(s.m, s.k) for s in plain if s.m != s.n}
    out: set[tuple[int, ...]] = {size for s in plain for size in ((s.n, s.k), (s.k, s.n)) if size not in rows}
    ops = gemms.trace.ops
    named = np.array([name in _CONVOLUTIONS for name in gemms.trace.names] or [False])
    for code in distinct_values(ops.dims[named[ops.name] & (ops.dims >= 0)]):  # distinct convolutions
        dims = listed(gemms.trace.texts[code])
        filters = dims[1] if dims and len(dims) > 1 else None
        if isinstance(filters, list) and len(filters) > 2 and all(type(n) is int for n in filters):
            out.add(tuple(filters))
    out |= {(size[0],) for size in out}
    return {size for size in out if prod(size) > 1}
