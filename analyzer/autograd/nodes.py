"""The nodes that autograd records for a step, and those of its backward passes that multiply or add."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import group_rows
from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.vocabulary.gemm_ops import factors_of, is_gemm

ACCUMULATE = "torch::autograd::AccumulateGrad"
UNTRACKED = np.iinfo(np.int64).max


def nodes_per_step(trace: Trace, steps: Steps) -> float:
    """Autograd nodes of a step, the median of the steps: the distinct sequence numbers of its forward operators, less
    the next free one that every operator reports.
    """
    ops = trace.ops
    rows = np.flatnonzero((ops.sequence >= 0) & (ops.forward_thread <= 0))
    step = steps.host_step_of(ops.start[rows])
    inside = step >= 0
    nodes, _ = group_rows(step[inside], ops.sequence[rows[inside]])
    counts = np.bincount(step[inside][nodes], minlength=steps.count)
    return float(max(0.0, median(counts) - 1))


class ForwardOperators(Struct, frozen=True):
    """The outermost operators of the training thread outside of backward passes. Arrays have shape (operators,)."""

    rows: I8  # slices, in order of time
    tracked: Mask  # gradients are on: the operator, or one inside it, has a sequence number
    has_node: Mask  # it creates a node


def forward_operators(regions: Regions, steps: Steps) -> ForwardOperators:
    """Every operator reports the next free sequence number, so one with a node is followed by a larger number. Without
    gradients, an operator has none.
    """
    slices, ops = regions.slices, regions.trace.ops
    outer = slices.outermost((slices.kind == OP) & (slices.thread == steps.thread))
    outer = outer[slices.ancestor(outer, regions.backward) < 0]
    outer = outer[np.argsort(slices.start[outer], kind="stable")].astype(np.int64)

    is_outer = slices.mask(outer)
    op = np.flatnonzero(slices.kind == OP)
    op = op[ops.sequence[slices.row[op]] >= 0]
    around = slices.ancestor(op, is_outer)
    first = np.full(len(slices), UNTRACKED, np.int64)
    np.minimum.at(first, around[around >= 0], ops.sequence[slices.row[op[around >= 0]]])

    number = first[outer]
    tracked = number < UNTRACKED
    has_node = np.zeros(len(outer), bool)
    has_node[tracked] = np.append(np.diff(number[tracked]) > 0, True)[: np.count_nonzero(tracked)]
    return ForwardOperators(outer, tracked, has_node)


def accumulations_per_step(regions: Regions, steps: Steps) -> float:
    """How often a step adds to the gradient of a parameter."""
    rows = np.flatnonzero(regions.named(ACCUMULATE.__eq__, OP))
    return float(steps.window.contains(regions.slices.start[rows]).sum()) / steps.count


def weight_products(regions: Regions, steps: Steps) -> I8:
    """The operators of backward passes that multiply by activations or weights: matmuls of two matrices and
    convolutions, inside the window.
    """
    slices = regions.slices
    rows = np.flatnonzero(regions.named(_may_have_weights, OP))
    rows = rows[steps.window.contains(slices.start[rows])]
    return rows[slices.ancestor(rows, regions.backward) >= 0].astype(np.int64)


def is_heavy(name: str) -> bool:
    """Whether an operator runs a layer: a matmul, a convolution or attention."""
    return is_gemm(name) or name in op_names.CONVOLUTION_OPS or name == "aten::scaled_dot_product_attention"


def _may_have_weights(name: str) -> bool:
    factors = factors_of(name)
    return (factors is not None and factors.rank == 2) or name == "aten::convolution_backward"
