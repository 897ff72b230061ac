"""The backward passes of whole modules, and whether anything before the module takes part in them."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.autograd.nodes import weight_products
from traceopt.analyzer.autograd.operator_inputs import arguments_of, nodes_of
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import OP, PYTHON
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.vocabulary.python_frames import MODULE_FRAME

_WANTED = 10  # the argument of convolution_backward that says which gradients it computes: "[False, True, True]"


class ModulePasses(Struct, frozen=True):
    """`modules`: how many were called. `nodes`: slices in order. `end_here`: no gradient leaves the modules, because
    they get data or indices.
    """

    modules: int
    nodes: I8
    end_here: bool


def find_module_passes(regions: Regions, steps: Steps, classes: Collection[str]) -> ModulePasses:
    """Of modules of these classes, by the frames of their calls."""
    slices = regions.slices
    names = {f"{MODULE_FRAME}{one}" for one in classes}
    calls = regions.calls(regions.named(lambda name: name.rpartition("_")[0] in names, PYTHON), steps)
    inside = slices.ancestor(np.arange(len(slices)), slices.mask(calls))
    operators = slices.outermost((slices.kind == OP) & (inside >= 0)).astype(np.int64)
    nodes, of = nodes_of(regions, operators)
    call = inside[operators[of]]
    order = np.lexsort((of, call))
    first = order[np.diff(call[order], prepend=-1) > 0]  # of each call: the node of its first operator
    entries = _with_gradients_of_inputs(regions, steps, nodes[first], operators[of[first]])
    modules = len(distinct_values(slices.name[calls]))
    return ModulePasses(modules, nodes, end_here=len(first) > 0 and not entries)


def find_ends(regions: Regions, steps: Steps) -> float:
    """How many layers per step have no gradient of their input, because it is data; 0 if that was not recorded."""
    slices = regions.slices
    products = weight_products(regions, steps)
    convolves = regions.named(op_names.is_convolution, OP)[products]
    _, of = np.unique(slices.ancestor(products, regions.backward), return_inverse=True)
    alone = np.bincount(of)[of] == 1
    masks = ["".join(one[_WANTED : _WANTED + 1]) for one in arguments_of(regions, products[convolves])]
    if not all(masks):
        return 0.0
    without = sum(mask.startswith("[False") for mask in masks)
    rows = np.flatnonzero(regions.named(op_names.EMBEDDING_BACKWARD.__eq__, OP))
    embeddings = steps.window.contains(slices.start[rows]).sum()
    return float(np.count_nonzero(alone & ~convolves) + without + embeddings) / steps.count


def _with_gradients_of_inputs(regions: Regions, steps: Steps, nodes: I8, operators: I8) -> list[int]:
    """Those of the nodes that do not only compute the gradients of weights, as far as is known. `operators`: theirs."""
    slices, names = regions.slices, regions.trace.names
    products = weight_products(regions, steps)
    of = slices.ancestor(products, slices.mask(nodes))
    return [
        node
        for node, operator in zip(nodes.tolist(), operators.tolist(), strict=True)
        if names[slices.name[operator]] not in op_names.EMBEDDINGS and not _is_of_weights(regions, products[of == node])
    ]


def _is_of_weights(regions: Regions, products: I8) -> bool:
    """Whether the products of a node give the gradient of a weight alone."""
    if len(products) and op_names.is_convolution(regions.trace.names[regions.slices.name[products[0]]]):
        return "".join(arguments_of(regions, products)[0][_WANTED : _WANTED + 1]).startswith("[False")
    return len(products) == 1
