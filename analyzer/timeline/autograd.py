"""What autograd records: nodes of a step, forward passes that train nothing, backward passes that repeat others."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import group_rows
from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.vocabulary.gemm_ops import factors_of, is_gemm

ACCUMULATE = "torch::autograd::AccumulateGrad"


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


class UntrainedCalls(Struct, frozen=True):
    """Calls that run forward passes which train nothing. Arrays have shape (calls,)."""

    rows: I8  # slices
    cost_ns: I8  # of the kernels that they launch; in a CPU-only run, of their operators

    @property
    def total_ns(self) -> int:
        return int(self.cost_ns.sum())


def calls_without_gradients(regions: Regions, steps: Steps) -> I8 | None:
    """The outermost slices of the training thread in which matmuls, convolutions or attention run while gradients are
    off: the model, a function that calls it, or the operator itself. None if autograd's sequence numbers, which show
    whether gradients are on, were not recorded.

    An operator has such a number unless it runs in `torch.no_grad`, or inside another operator or autograd.Function.
    """
    slices, ops = regions.slices, regions.trace.ops
    is_op = slices.kind == OP
    tracked = np.zeros(len(slices), bool)
    tracked[is_op] = ops.sequence[slices.row[is_op]] >= 0
    if not tracked.any():
        return None
    trains = tracked | regions.backward
    heavy = np.flatnonzero(regions.named(is_heavy, OP) & (slices.thread == steps.thread))
    heavy = heavy[steps.host_window.contains(slices.start[heavy])]
    heavy = heavy[slices.ancestor(heavy, trains) < 0]
    heavy = heavy[~regions.own_time(regions.optimizer, steps.thread).contains(slices.start[heavy])]
    if not len(heavy):
        return heavy.astype(np.int64)
    return _calls_around(regions, heavy, trains)


def calls_without_backward(regions: Regions, steps: Steps) -> I8:
    """The outermost slices of the training thread in which matmuls, convolutions or attention run with gradients on,
    while no backward pass uses their nodes. Empty if the trace does not tell.

    Each node of the backward pass has the sequence number of its forward operator. An operator without a node of its
    own, such as one of a frozen layer, has the number of the next node. So it counts as used if that node is.
    """
    slices, ops = regions.slices, regions.trace.ops
    is_op = slices.kind == OP
    sequence = np.full(len(slices), -1, np.int64)
    sequence[is_op] = ops.sequence[slices.row[is_op]]
    used = np.unique(sequence[regions.backward & (sequence >= 0)])
    forward = (sequence >= 0) & ~regions.backward
    heavy = np.flatnonzero(regions.named(is_heavy, OP) & (slices.thread == steps.thread))
    heavy = heavy[steps.host_window.contains(slices.start[heavy])]
    heavy = heavy[slices.ancestor(heavy, regions.backward | regions.optimizer) < 0]
    node = slices.ancestor(heavy, forward)
    heavy, node = heavy[node >= 0], node[node >= 0]
    trains = np.isin(sequence[node], used)
    if not trains.any():  # the backward pass has no numbers, or there is none
        return np.empty(0, np.int64)
    return _calls_around(regions, heavy[~trains], regions.backward | (forward & np.isin(sequence, used)))


def weight_products(regions: Regions, steps: Steps) -> I8:
    """The operators of backward passes that multiply by activations or weights: matmuls of two matrices and
    convolutions, inside the window.
    """
    slices = regions.slices
    rows = np.flatnonzero(regions.named(_may_have_weights, OP))
    rows = rows[steps.window.contains(slices.start[rows])]
    return rows[slices.ancestor(rows, regions.backward) >= 0].astype(np.int64)


def accumulations_per_step(regions: Regions, steps: Steps) -> float:
    """How often a step adds to the gradient of a parameter."""
    rows = np.flatnonzero(regions.named(ACCUMULATE.__eq__, OP))
    return float(steps.window.contains(regions.slices.start[rows]).sum()) / steps.count


def repeated_nodes(regions: Regions, steps: Steps) -> I8:
    """The nodes of backward passes (slices, in order) that an earlier pass over the same forward pass has run too. One
    backward pass of the summed losses gives the same gradients without them. Shape (nodes,).

    A node has the sequence number and the thread of its forward operator. Between the two runs, no optimizer reads or
    clears gradients; both add to the gradients of parameters, which torch.autograd.grad does not. Empty if a backward
    pass records gradients itself, for a gradient penalty or activation checkpointing: it has other reasons.
    """
    slices, ops = regions.slices, regions.trace.ops
    nodes = np.flatnonzero(regions.backward & (slices.kind == OP))
    nodes = nodes[np.lexsort((slices.start[nodes], slices.thread[nodes]))]
    number = ops.sequence[slices.row[nodes]]
    numbered = np.flatnonzero(number >= 0)
    if not len(numbered) or _records_gradients(regions):
        return np.empty(0, np.int64)
    phase = _updates_before(regions, slices.start[nodes])
    thread = ops.forward_thread[slices.row[nodes]]
    first, node = group_rows(number[numbered], thread[numbered], phase[numbered])
    again = np.ones(len(numbered), bool)
    again[first] = False
    shared = np.bincount(node[again], minlength=len(first))[node] > 0

    # Adding to a gradient has no number. It follows the node that computed the gradient.
    owner = np.searchsorted(numbered, np.arange(len(nodes)), side="right") - 1
    follows = np.maximum(owner, 0)
    repeats = (owner >= 0) & again[follows]
    accumulates = _encloses(regions, nodes, ACCUMULATE)
    kept = phase[accumulates & (owner >= 0) & shared[follows] & ~again[follows]]
    added = phase[accumulates & repeats & _encloses(regions, nodes, "aten::add_")]
    rows = nodes[repeats & np.isin(phase, np.intersect1d(kept, added))]
    return np.sort(rows[steps.window.contains(slices.start[rows])]).astype(np.int64)


def _may_have_weights(name: str) -> bool:
    factors = factors_of(name)
    return (factors is not None and factors.rank == 2) or name == "aten::convolution_backward"


def _calls_around(regions: Regions, heavy: npt.NDArray[np.integer], trains: npt.NDArray[np.bool_]) -> I8:
    """The outermost slices around some operators in which nothing trains."""
    free = np.zeros(len(regions.slices), bool)
    free[regions.slices.outermost(~regions.slices.encloses(trains | regions.optimizer))] = True
    return np.unique(regions.slices.ancestor(heavy, free)).astype(np.int64) if len(heavy) else heavy.astype(np.int64)


def is_heavy(name: str) -> bool:
    """Whether an operator runs a layer: a matmul, a convolution or attention."""
    return is_gemm(name) or name in op_names.CONVOLUTION_OPS or name == "aten::scaled_dot_product_attention"


def _records_gradients(regions: Regions) -> bool:
    """Whether operators inside a backward pass have numbers of nodes, as with gradients on."""
    slices = regions.slices
    op = np.flatnonzero(regions.named(lambda name: name.startswith("aten::"), OP))
    op = op[regions.trace.ops.sequence[slices.row[op]] >= 0]
    return bool((slices.ancestor(op, regions.backward) >= 0).any())


def _updates_before(regions: Regions, times: I8) -> npt.NDArray[np.int64]:
    """How many calls that use or clear gradients begin before each of some times."""
    starts = np.sort(regions.slices.start[regions.optimizer | regions.zero_grad])
    return np.searchsorted(starts, times).astype(np.int64)


def _encloses(regions: Regions, rows: npt.NDArray[np.integer], name: str) -> npt.NDArray[np.bool_]:
    return np.asarray(regions.slices.encloses(regions.named(name.__eq__, OP))[rows])
