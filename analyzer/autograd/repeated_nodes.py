"""Backward passes that repeat the nodes of others."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.arrays.grouping import group_rows
from traceopt.analyzer.autograd.nodes import ACCUMULATE
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps


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
