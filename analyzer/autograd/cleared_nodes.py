"""Which backward nodes compute gradients that the script clears before their optimizer reads them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.autograd.nodes import ACCUMULATE, weight_products
from traceopt.analyzer.run_log.cleared_gradients import ClearedGradients
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import OP, PYTHON
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import library_frames

Shape = tuple[int, ...]


class ClearedNodes(Struct, frozen=True):
    """A network, and the backward passes of each step that compute gradients of it which are cleared. Arrays are
    slices, in order.

    If the network of the cleared gradients comes first in the forward pass, its backward nodes come last: `nodes` serve
    nothing else, and of the nodes at its `border` a part does, the gradient of their input. If it comes last, what is
    read passes through it: of `products`, its matmuls and convolutions, a part computes gradients of its weights. What
    does not apply is empty.
    """

    gradients: ClearedGradients
    passes: I8  # calls of the autograd engine
    nodes: I8
    border: I8
    products: I8


def cleared_by_network(found: Iterable[ClearedNodes]) -> tuple[ClearedNodes, ...]:
    """One for each network and side of it: several passes of a step may clear the same gradients."""
    passes = defaultdict[object, list[ClearedNodes]](list)
    for one in found:
        passes[one.gradients.built, one.gradients.shapes, len(one.nodes) > 0].append(one)
    return tuple(
        ClearedNodes(
            same[0].gradients, *(np.sort(_joined(list(column))) for column in zip(*map(_rows, same), strict=True))
        )
        for same in passes.values()
    )


def _rows(one: ClearedNodes) -> tuple[I8, I8, I8, I8]:
    return one.passes, one.nodes, one.border, one.products


def find_cleared_nodes(regions: Regions, steps: Steps, gradients: ClearedGradients) -> ClearedNodes | None:
    """None if the steps of the trace do not have the same backward passes, or the shapes of the gradients do not tell
    where the network is.
    """
    passes = _passes(regions, steps, gradients)
    if passes is None:
        return None
    slices, wanted = regions.slices, Counter(gradients.shapes)
    evaluations = _in_time(regions, slices.outermost(regions.backward))
    added = _in_time(regions, np.flatnonzero(regions.named(ACCUMULATE.__eq__, OP)))
    owners = evaluations[~slices.encloses(regions.named(ACCUMULATE.__eq__, OP))[evaluations]]
    products = _in_time(regions, weight_products(regions, steps))
    nodes, border, of_weights = [], [], []
    for row in passes.tolist():
        mine = _inside(regions, added, row)
        shapes = [_shape(regions, one) for one in mine.tolist()]
        count = len(gradients.shapes)
        is_last, is_first = Counter(shapes[-count:]) == wanted, Counter(shapes[:count]) == wanted
        if count >= len(shapes) or is_last == is_first:
            return None
        if is_last:
            read_last = slices.end[mine[-count - 1]]
            nodes.append(_inside(regions, evaluations, row, after=int(read_last)))
            border.append(_inside(regions, owners, row, before=int(read_last))[-1:])
        else:
            cleared_last = slices.start[mine[count - 1]]
            of_weights.append(_inside(regions, products, row, before=int(cleared_last)))
    if nodes and of_weights:
        return None
    return ClearedNodes(gradients, passes, _joined(nodes), _joined(border), _joined(of_weights))


def _passes(regions: Regions, steps: Steps, gradients: ClearedGradients) -> I8 | None:
    """The same backward pass of each step of the window; None if a step has another number of passes."""
    slices = regions.slices
    calls = _in_time(regions, slices.outermost(regions.engine & (slices.thread == steps.thread)))
    calls = calls[slices.ancestor(calls, regions.named(library_frames.is_grad_frame, PYTHON)) < 0]
    step = steps.host_step_of(slices.start[calls])
    calls, step = calls[step >= 0], step[step >= 0]
    if not len(calls) or np.any(np.bincount(step, minlength=steps.count) != gradients.backwards):
        return None
    return calls[gradients.backward :: gradients.backwards]


def _in_time(regions: Regions, rows: npt.NDArray[np.integer]) -> I8:
    """The same slices, by their start."""
    return rows[np.argsort(regions.slices.start[rows], kind="stable")].astype(np.int64)


def _inside(regions: Regions, rows: I8, call: int, *, after: int = 0, before: int | None = None) -> I8:
    """Those of some slices, in order, that begin inside a call and within further limits in time."""
    starts = regions.slices.start[rows]
    first = max(after, int(regions.slices.start[call]))
    last = int(regions.slices.end[call]) if before is None else before
    return rows[np.searchsorted(starts, first) : np.searchsorted(starts, last)]


def _shape(regions: Regions, row: int) -> Shape | None:
    """Of the gradient that a node adds."""
    trace = regions.trace
    text = int(trace.ops.dims[regions.slices.row[row]])
    try:
        first = msgspec.json.decode(trace.texts[text], type=list[Shape])[:1] if text >= 0 else []
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    return first[0] if first else None


def _joined(parts: list[I8]) -> I8:
    return np.concatenate([np.empty(0, np.int64), *parts]).astype(np.int64)
