"""Operators of the forward pass: the shapes and arguments that they got, and their nodes in the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.arrays.grouping import group_rows
from traceopt.analyzer.tables.json_values import listed
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps

T = TypeVar("T")
Shape = tuple[int, ...]
Rows = npt.NDArray[np.integer]


def tensors(dims: Any) -> list[Shape]:
    """The shapes of the inputs that are tensors. An input that is no tensor counts as one of no dimensions."""
    if not isinstance(dims, list):
        return []
    found = [dim for dim in dims if isinstance(dim, list) and all(type(size) is int for size in dim)]
    return [tuple(tensor) for tensor in found]


def of_inputs(regions: Regions, rows: Rows, read: Callable[[str, Any, Any], T]) -> list[T]:
    """`read(name, dims, types)` of each operator, once for each kind of call."""
    trace, ops = regions.trace, regions.trace.ops
    if not len(rows):
        return []
    at = regions.slices.row[rows]
    first, group = group_rows(regions.slices.name[rows], ops.dims[at], ops.types[at])
    kinds = zip(
        regions.slices.name[rows[first]].tolist(),
        ops.dims[at[first]].tolist(),
        ops.types[at[first]].tolist(),
        strict=True,
    )
    values = [
        read(trace.names[name], _listed(trace.texts, dims), _listed(trace.texts, types)) for name, dims, types in kinds
    ]
    return [values[kind] for kind in group.tolist()]


def shapes_of(regions: Regions, rows: Rows) -> list[list[Shape]]:
    """The shapes of the tensors that each operator takes."""
    return of_inputs(regions, rows, lambda _name, dims, _types: tensors(dims))


def arguments_of(regions: Regions, rows: Rows) -> list[list[str]]:
    """All arguments of each operator as the profiler writes them; "" for tensors. Empty if they were not recorded."""
    trace = regions.trace
    first, group = group_rows(trace.ops.concrete[regions.slices.row[rows]])
    codes = trace.ops.concrete[regions.slices.row[rows[first]]].tolist()
    kinds = [_listed(trace.texts, code) or [] for code in codes]
    return [list(map(str, kinds[kind])) for kind in group.tolist()]


def forward_calls(regions: Regions, steps: Steps, test: Callable[[str], bool]) -> I8:
    """The outermost operators of the training thread outside of backward passes and optimizers, in the window, if their
    name passes the test.
    """
    slices = regions.slices
    rows = regions.calls((slices.kind == OP) & ~regions.optimizer, steps)
    rows = rows[regions.named(test, OP)[rows]]
    return rows[(slices.ancestor(rows, regions.backward) < 0) & ~regions.updates[rows]]


def nodes_of(regions: Regions, rows: Rows) -> tuple[I8, I8]:
    """The backward nodes that forward operators create, or operators inside them, and for each node the place of its
    operator in `rows`, which are in order. Slices in order, shape (nodes,).
    """
    slices, ops = regions.slices, regions.trace.ops
    op = np.flatnonzero(slices.kind == OP)
    op = op[ops.sequence[slices.row[op]] >= 0]
    is_node = regions.backward[op]
    forward, nodes = op[~is_node & (ops.forward_thread[slices.row[op]] <= 0)], op[is_node]
    created_by = ops.creators(slices.row[forward])[slices.row[nodes]]
    nodes, created_by = nodes[created_by >= 0], created_by[created_by >= 0]
    owner = slices.ancestor(slices.of(OP, len(ops))[created_by], slices.mask(rows))
    nodes, owner = nodes[owner >= 0], owner[owner >= 0]
    return nodes.astype(np.int64), np.searchsorted(rows, owner).astype(np.int64)


def _listed(texts: list[str], code: int) -> list[Any] | None:
    return listed(texts[code]) if code >= 0 else None
