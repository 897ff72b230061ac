"""Where the kernels of replayed CUDA graphs come from.

A replay is one call, so all of its kernels seem to belong to that line. Their operators and lines
come from the capture, if it is in the same trace: its launches and the work of a replay are the same nodes in the same
order. Work of
a replay is in that order by node id, or by time if the graph runs on one stream. Annotations of PyTorch
(`torch.cuda.graph(enable_annotations=True)`) name the kernels without a capture, and so does a log of torch.compile for
the kernels that Inductor generated. Launch stacks, which PyTorch dumps into a file, have the line of each node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import DecodeError, Struct
from msgspec.json import decode

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.cuda_graphs.captures import Capture, find_captures
from traceopt.analyzer.tables.compilation import Compilation
from traceopt.analyzer.tables.schema import I4, I8, Mask
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.call_tree import OP, Slices
from traceopt.analyzer.timeline.launch_links import LaunchLinks
from traceopt.analyzer.vocabulary import runtime_calls
from traceopt.result.finding import Location

_LENGTH = 200
_NODE_BITS = 32


class GraphOrigins(Struct, frozen=True):
    """Columns parallel to `trace.gpu`, shape (len(gpu),).

    `replayed`: a launch of a graph runs this work. `launch_slice`: the call that captured it, a row of Slices, and
    `op_slice` the operator around that call; -1: unknown. `capture_start`: when its capture began, ns.
    `annotation`: the text of PyTorch's annotation, a code into `annotations`; -1: none. `compiled`: the log of
    torch.compile knows the kernel by its name. `launched_at`: by row, the line in the launch stacks.
    """

    replayed: Mask
    launch_slice: I4
    op_slice: I4
    capture_start: I8
    annotation: I4
    annotations: tuple[str, ...]
    compiled: Mask
    launched_at: Mapping[int, Location]

    @property
    def known(self) -> Mask:
        """Replayed work with an operator of its own."""
        return np.asarray(self.replayed & ((self.op_slice >= 0) | (self.annotation >= 0) | self.compiled))


def find_graph_origins(
    trace: Trace, slices: Slices, links: LaunchLinks, compilation: Compilation | None, sites: Mapping[int, Location]
) -> GraphOrigins:
    """`sites`: the lines of nodes. Keys: the graph's number in the upper 32 bits, the node's below."""
    graph_call = np.array([runtime_calls.is_graph_launch(name) for name in trace.names] or [False])
    replayed = links.launch >= 0
    replayed[replayed] = graph_call[trace.runtime.name[links.launch[replayed]]]
    launch_slice, capture_start = np.full(len(trace.gpu), -1, np.int32), np.zeros(len(trace.gpu), np.int64)
    captures = find_captures(trace, slices, links) if replayed.any() else []
    if captures:
        for execution, capture in _joined(trace, slices, captures, list(_executions(trace, links, replayed))):
            launch_slice[execution], capture_start[execution] = capture.launches, capture.start
    annotation, annotations = _annotations(trace, replayed)
    kernels = compilation.kernels if compilation is not None else {}
    compiled = np.array([name in kernels for name in trace.names] or [False])[trace.gpu.name] & replayed
    op_slice = slices.ancestor(launch_slice, slices.kind == OP)
    launched_at = _launched_at(trace, replayed, sites) if sites else {}
    return GraphOrigins(replayed, launch_slice, op_slice, capture_start, annotation, annotations, compiled, launched_at)


def _launched_at(trace: Trace, replayed: Mask, sites: Mapping[int, Location]) -> dict[int, Location]:
    """Kineto numbers a node together with its graph, Cuspy without it."""
    rows = np.flatnonzero(replayed & (trace.gpu.graph_node > 0))
    node, graph = trace.gpu.graph_node[rows], np.maximum(trace.gpu.graph[rows], 0)
    whole = np.where(node >> _NODE_BITS > 0, node, graph << _NODE_BITS | node)
    found = ((row, sites.get(number)) for row, number in zip(rows.tolist(), whole.tolist(), strict=True))
    return {row: site for row, site in found if site is not None}


def _executions(trace: Trace, links: LaunchLinks, replayed: Mask) -> Iterator[I8]:
    """The rows of work of each replay, in the order of the capture. A replay whose order is unknown is left out."""
    work = trace.gpu
    rows = np.flatnonzero(replayed)
    rows = rows[np.lexsort((work.start[rows], links.launch[rows]))]
    for execution in np.split(rows, np.flatnonzero(np.diff(links.launch[rows])) + 1):  # a step has few replays
        nodes = work.graph_node[execution]
        if (nodes > 0).all() and len(distinct_values(nodes)) == len(nodes):
            yield execution[np.argsort(nodes, kind="stable")]
        elif len(distinct_values(work.queue[execution])) == 1:
            yield execution


def _joined(
    trace: Trace, slices: Slices, captures: list[Capture], executions: list[I8]
) -> Iterator[tuple[I8, Capture]]:
    """The work of each replay with its capture. Two graphs, or two captures, with the same kinds of work in the same
    order cannot be told apart: they get no operators, unless all captures ran the same ones.
    """
    by_kinds: defaultdict[tuple[int, ...], list[Capture]] = defaultdict(list)
    for capture in captures:
        by_kinds[capture.kinds].append(capture)
    replays: defaultdict[tuple[int, ...], list[I8]] = defaultdict(list)
    for execution in executions:
        replays[tuple(trace.gpu.kind[execution].tolist())].append(execution)
    for kinds, same in replays.items():
        kernels = {tuple(trace.gpu.name[execution].tolist()) for execution in same}
        operators = {_operators(slices, capture) for capture in by_kinds[kinds]}
        if len(kernels) == 1 and len(operators) == 1:
            yield from ((execution, by_kinds[kinds][-1]) for execution in same)


def _operators(slices: Slices, capture: Capture) -> tuple[int, ...]:
    """The names of the operators of a capture, as codes; -1: a launch outside of operators."""
    op = slices.ancestor(capture.launches, slices.kind == OP)
    return tuple(np.where(op >= 0, slices.name[np.maximum(op, 0)], -1).tolist())


def _annotations(trace: Trace, replayed: Mask) -> tuple[I4, tuple[str, ...]]:
    work = trace.gpu
    noted = np.where(work.annotation >= 0, work.annotation, work.annotation_name)
    noted = np.where(replayed, noted, -1).astype(np.int32)
    codes = distinct_values(noted[noted >= 0])
    texts = [_text(trace.texts[code]) for code in codes.tolist()]
    out = np.full(len(noted), -1, np.int32)
    out[noted >= 0] = np.searchsorted(codes, noted[noted >= 0])
    return out, tuple(texts)


def _text(raw: str) -> str:
    try:
        value = decode(raw)
    except DecodeError:
        value = raw
    return str(value)[:_LENGTH]
