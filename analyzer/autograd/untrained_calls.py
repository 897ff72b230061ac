"""Forward passes that train nothing."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.autograd.nodes import ForwardOperators, is_heavy
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps


class UntrainedCalls(Struct, frozen=True):
    """Calls that run forward passes which train nothing. Arrays have shape (calls,)."""

    rows: I8  # slices
    cost_ns: I8  # of the kernels that they launch; in a CPU-only run, of their operators

    @property
    def total_ns(self) -> int:
        return int(self.cost_ns.sum())


def calls_without_gradients(regions: Regions, steps: Steps, operators: ForwardOperators) -> I8 | None:
    """The outermost slices of the training thread in which matmuls, convolutions or attention run while gradients are
    off: the model, a function that calls it, or the operator itself. None if autograd's sequence numbers, which show
    whether gradients are on, were not recorded.

    Layers with gradients on count as trained, even frozen ones, which create no node. Other operators only do with a
    node: a metric may compare what a layer returned after gradients are on again.
    """
    slices = regions.slices
    if not operators.tracked.any():
        return None
    layer = slices.encloses(regions.named(is_heavy, OP))[operators.rows]
    trains = regions.backward.copy()
    trains[operators.rows[operators.has_node | (operators.tracked & layer)]] = True
    heavy = np.flatnonzero(regions.named(is_heavy, OP) & (slices.thread == steps.thread))
    heavy = heavy[steps.host_window.contains(slices.start[heavy])]
    heavy = heavy[slices.ancestor(heavy, trains) < 0]
    heavy = heavy[~regions.updates[heavy]]
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
    used = distinct_values(sequence[regions.backward & (sequence >= 0)])
    forward = (sequence >= 0) & ~regions.backward
    heavy = np.flatnonzero(regions.named(is_heavy, OP) & (slices.thread == steps.thread))
    heavy = heavy[steps.host_window.contains(slices.start[heavy])]
    heavy = heavy[(slices.ancestor(heavy, regions.backward) < 0) & ~regions.updates[heavy]]
    node = slices.ancestor(heavy, forward)
    heavy, node = heavy[node >= 0], node[node >= 0]
    trains = np.isin(sequence[node], used)
    if not trains.any():  # the backward pass has no numbers, or there is none
        return np.empty(0, np.int64)
    return _calls_around(regions, heavy[~trains], regions.backward | (forward & np.isin(sequence, used)))


def calls_of_frozen_layers(regions: Regions, steps: Steps, operators: ForwardOperators) -> I8:
    """The outermost slices of the training thread in which matmuls, convolutions or attention run with gradients on,
    but create no node: nothing that they compute with has a gradient.
    """
    slices, ops = regions.slices, regions.trace.ops
    frozen = slices.mask(operators.rows[operators.tracked & ~operators.has_node])
    heavy = np.flatnonzero(regions.named(is_heavy, OP) & (slices.thread == steps.thread))
    heavy = heavy[steps.host_window.contains(slices.start[heavy])]
    heavy = heavy[(ops.sequence[slices.row[heavy]] >= 0) & ~regions.updates[heavy]]
    heavy = heavy[slices.ancestor(heavy, frozen) >= 0]
    return _calls_around(regions, heavy, regions.backward | slices.mask(operators.rows[operators.has_node]))


def _calls_around(regions: Regions, heavy: npt.NDArray[np.integer], trains: npt.NDArray[np.bool_]) -> I8:
    """The outermost slices around some operators in which nothing trains."""
    free = regions.slices.mask(regions.slices.outermost(~regions.slices.encloses(trains | regions.optimizer)))
    return distinct_values(regions.slices.ancestor(heavy, free)).astype(np.int64)
