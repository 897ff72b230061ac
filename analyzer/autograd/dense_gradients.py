"""Lookups of a few rows of a large table whose backward pass fills a gradient of the whole table."""

from __future__ import annotations

from collections import Counter
from math import prod

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.arrays.intervals import union
from traceopt.analyzer.autograd.host_reads import READS
from traceopt.analyzer.autograd.nodes import ACCUMULATE
from traceopt.analyzer.autograd.operator_inputs import Rows, Shape, arguments_of, forward_calls, nodes_of, shapes_of
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import op_names

MOST_USED = 0.25  # of a table's rows in a step: a sparse gradient of more of them is hardly smaller
_ADDS = frozenset({"aten::add_", "aten::_foreach_add_"})
BAG = "aten::embedding_bag"
# Arguments with which a lookup has a sparse gradient already, or cannot have one: the scale of gradients, mode "max".
_UNSUITED = {"aten::embedding": {3: "True", 4: "True"}, BAG: {3: "True", 4: "2", 5: "True"}}


class DenseGradients(Struct, frozen=True):
    """Lookups in the window and the backward node of each, shape (len,), and the nodes that add up their gradients.
    Slices.

    `tables` has the rows and the width of each kind of table. `used` is the share of their rows that a step looks up,
    at most, and `element_share` their part of all gradients of a step. `are_read`: an operator works on gradients
    before the optimizer does, such as one that clips them. `are_added`: the optimizer adds them to the weights and does
    nothing else, as SGD does without momentum and weight decay.
    """

    lookups: I8
    nodes: I8
    additions: I8
    tables: tuple[Shape, ...] = ()
    used: float = 0.0
    element_share: float = 0.0
    are_read: bool = False
    are_added: bool = False

    def __len__(self) -> int:
        return len(self.lookups)

    @property
    def all_nodes(self) -> I8:
        return np.union1d(self.nodes, self.additions).astype(np.int64)


_NONE = DenseGradients(*(np.empty(0, np.int64),) * 3)


def find_dense_gradients(regions: Regions, steps: Steps) -> DenseGradients:
    """Lookups of rows of a parameter of which a step reads at most a quarter. Left out are tables that something else
    reads too, such as the output layer of a language model with tied weights: their gradient is dense anyway.
    """
    slices = regions.slices
    lookups = forward_calls(regions, steps, op_names.LOOKUPS.__contains__)
    if not len(lookups):
        return _NONE
    node, of = nodes_of(regions, lookups)
    lookups = lookups[of]
    tables, read = _tables(regions, lookups, node)
    adds = np.flatnonzero(regions.named(ACCUMULATE.__eq__, OP))
    adds = adds[steps.window.contains(slices.start[adds])]
    added = [shapes[0] if shapes else () for shapes in shapes_of(regions, adds)]
    gradients, uses = Counter(added), _other_uses(regions, steps)
    total: Counter[Shape] = Counter()
    for table, rows in zip(tables, read, strict=True):
        total[table] += rows

    def is_sparse(table: Shape) -> bool:
        """Whether lookups are all that adds to the gradients of tables of this shape, and they read little of them."""
        own = gradients[table] / steps.count - uses[table]
        return len(table) == 2 and own >= 1 and total[table] / steps.count <= MOST_USED * own * table[0]

    kept = {table for table in total if is_sparse(table)}
    if not kept:
        return _NONE
    mine = np.array([table in kept for table in tables], bool)
    owned = {table: gradients[table] - uses[table] * steps.count for table in kept}
    elements = sum(prod(shape) * count for shape, count in gradients.items())
    accumulations = slices.ancestor(adds[np.array([shape in kept for shape in added], bool)], regions.backward)
    return DenseGradients(
        lookups[mine],
        node[mine],
        distinct_values(accumulations[accumulations >= 0]).astype(np.int64),
        tuple(sorted(kept, key=prod, reverse=True)),
        max(total[table] / owned[table] / table[0] for table in kept),
        sum(prod(table) * count for table, count in owned.items()) / max(1, elements),
        _are_read(regions, steps),
        _are_added(regions),
    )


def _tables(regions: Regions, lookups: Rows, node: Rows) -> tuple[list[Shape], list[int]]:
    """The shape of each lookup's table, () if its gradient cannot be sparse, and how many rows it reads."""
    names = [regions.trace.names[code] for code in regions.slices.name[lookups].tolist()]
    inputs, arguments = shapes_of(regions, lookups), arguments_of(regions, lookups)
    gradients = shapes_of(regions, node + 1)  # the node itself is the first slice inside its evaluation
    tables, read = [], []
    for name, shapes, given, gradient in zip(names, inputs, arguments, gradients, strict=True):
        unsuited = any(given[at : at + 1] == [value] for at, value in _UNSUITED.get(name, {}).items())
        known = len(shapes) > 1 and len(shapes[0]) == 2 and bool(gradient) and not unsuited
        tables.append(shapes[0] if known else ())
        read.append(0 if not known else prod(shapes[1]) if name == BAG else prod(gradient[0]) // shapes[0][1])
    return tables, read


def _are_read(regions: Regions, steps: Steps) -> bool:
    """Whether operators run between the end of a backward pass and the optimizer, which are not reads of the loss."""
    slices = regions.slices
    updates = slices.start[slices.outermost(regions.optimizer & (slices.thread == steps.thread))]
    done = np.sort(slices.end[regions.backward])
    before = np.searchsorted(done, updates, side="right") - 1
    between = union(done[before[before >= 0]], updates[before >= 0])
    operators = forward_calls(regions, steps, lambda name: name not in READS)
    return bool(between.contains(slices.start[operators]).any())


def _are_added(regions: Regions) -> bool:
    slices = regions.slices
    outer = slices.outermost((slices.kind == OP) & regions.updates)
    names = {regions.trace.names[code] for code in distinct_values(slices.name[outer]).tolist()}
    return bool(names) and names <= _ADDS


def _other_uses(regions: Regions, steps: Steps) -> Counter[Shape]:
    """How many other operators of a step's forward pass take a tensor of a shape, or of the reversed one, with
    gradients on: products with the table, a penalty of its weights.
    """
    others = op_names.LOOKUPS | op_names.MOVES
    rows = forward_calls(regions, steps, lambda name: name not in others)
    rows = rows[regions.trace.ops.sequence[regions.slices.row[rows]] >= 0]
    taken = Counter(
        shape for shapes in shapes_of(regions, rows) for shape in {way for one in shapes for way in (one, one[::-1])}
    )
    return Counter({shape: -(-count // steps.count) for shape, count in taken.items()})
