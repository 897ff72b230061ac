"""Lines that call the autograd engine many times per step: for each row of a Jacobian, or each sample of a batch."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.arrays.intervals import Intervals, intersect, merge
from traceopt.analyzer.autograd.nodes import ACCUMULATE, is_heavy
from traceopt.analyzer.autograd.operator_inputs import forward_calls, nodes_of, of_inputs, tensors
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.timeline.call_sites import CallSites
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.vocabulary.gemm_ops import gemm_shape

LEAST_CALLS = 4  # of a line per step
MOST = 0.9  # of the rounds, so that an outer loop may do something else between two of its own
LONG_NS = 30_000  # operators that take longer compute for most of it: one call for all rows takes about as long
MOST_BEFORE = 8  # operators between the one that splits a tensor and the loop over its parts


# What a loop does with the gradients of a round, besides copies and views: it adds them up, or puts them into a tensor.
_GATHERS = frozenset(
    f"aten::{name}" for name in ("add", "add_", "cat", "copy_", "eye", "fill_", "stack", "sum", "zero_")
)
_CLIPS = "aten::_foreach_mul_"  # of clip_grad_norm_; an update of weights adds to them as well


class GradientLoop(Struct, frozen=True):
    """One line's calls of the engine: slices in order. `rows`: they run backward through the same nodes, once for each
    row of a Jacobian. `samples`: each follows a forward pass of one sample.

    `area` is when the loop ran and when the backward pass of its results did. `short_share` is how much of that goes to
    short operators and to what surrounds operators. `nodes` are the backward nodes in the area.
    """

    kind: Literal["rows", "samples"]
    calls: I8
    calls_per_step: float
    area: Intervals
    short_share: float
    nodes: I8


def find_gradient_loops(regions: Regions, steps: Steps, sites: CallSites) -> tuple[GradientLoop, ...]:
    """Only loops whose rounds do not need each other's results, as far as the trace tells: between two calls, a row or
    a sample is picked, and nothing is computed of the gradients. A solver picks nothing between its rounds.
    """
    calls = regions.calls(regions.engine, steps)
    if len(calls) < LEAST_CALLS * steps.count:
        return ()
    operators = forward_calls(regions, steps, lambda name: bool(name))
    line = sites.calling(calls)
    lines = [calls[line == site] for site in distinct_values(line[line >= 0]).tolist()]
    return tuple(
        loop
        for mine in lines
        if len(mine) >= LEAST_CALLS * steps.count
        and (loop := _rows(regions, steps, operators, mine) or _samples(regions, steps, operators, mine)) is not None
    )


class _Rounds(Struct, frozen=True):
    """Some calls of the engine, and the operators between them: `gap` is the place of the call before each operator, -1
    for those outside of the loop. `inner` are the places of calls that another call of the same step follows.
    """

    calls: I8
    operators: I8
    gap: I8
    inner: I8
    picks_before: bool  # a tensor is split into its parts right before the loop

    @classmethod
    def of(cls, regions: Regions, steps: Steps, operators: I8, calls: I8) -> _Rounds:
        slices = regions.slices
        step = steps.host_step_of(slices.start[calls])
        inner = np.flatnonzero(step[1:] == step[:-1])
        before = np.searchsorted(slices.start[calls], slices.start[operators], side="right") - 1
        gap = np.where(np.isin(before, inner), before, -1).astype(np.int64)
        per_round = int((gap >= 0).sum()) // max(1, len(inner))
        first = np.searchsorted(
            slices.start[operators], slices.start[calls[np.setdiff1d(np.arange(len(calls)), inner + 1)]]
        )
        splits = np.append(0, np.cumsum(regions.named(op_names.SPLITS.__contains__, OP)[operators]))
        picks = splits[first] > splits[np.maximum(first - per_round - MOST_BEFORE, 0)]
        return cls(calls, operators, gap, inner, bool(picks.all()))

    def share(self, regions: Regions, allowed: Mask, needed: Mask | None = None) -> float:
        """Of the gaps: those with only `allowed` operators, that pick another part of a tensor than the gap before, and
        have a `needed` operator.
        """
        inside = self.gap >= 0
        gap, rows = self.gap[inside], self.operators[inside]
        picks = regions.named(op_names.PICKS.__contains__, OP)[rows]
        part = regions.trace.ops.concrete[regions.slices.row[rows[picks]]].tolist()
        picked = set(zip(gap[picks].tolist(), part, strict=True))
        other = [at for at, one in picked if (at - 1, one) not in picked]
        kept = self.inner if self.picks_before else np.intersect1d(self.inner, other)
        kept = kept if needed is None else np.intersect1d(kept, gap[needed[rows]])
        return len(np.setdiff1d(kept, gap[~allowed[rows]])) / max(1, len(self.inner))


def _rows(regions: Regions, steps: Steps, operators: I8, calls: I8) -> GradientLoop | None:
    """Calls that do not add to gradients, and run most of the nodes of the call before."""
    _, adding = _inside(regions, calls, regions.named(ACCUMULATE.__eq__, OP))
    calls = np.delete(calls, adding)
    rounds = _Rounds.of(regions, steps, operators, calls)
    allowed = regions.named(lambda name: name in op_names.MOVES or name in op_names.PICKS or name in _GATHERS, OP)
    if len(calls) < LEAST_CALLS * steps.count or rounds.share(regions, allowed) < MOST:
        return None
    numbers = _numbers(regions, calls)
    repeats = [len(numbers[i] & numbers[i + 1]) >= len(numbers[i + 1]) / 2 for i in rounds.inner.tolist()]
    return _found(regions, steps, "rows", rounds) if np.mean(repeats) >= MOST else None


def _samples(regions: Regions, steps: Steps, operators: I8, calls: I8) -> GradientLoop | None:
    """Calls after a forward pass whose matmuls get one row, or one column, and whose convolutions get one image."""
    heavy = regions.named(is_heavy, OP)
    rows = np.flatnonzero(heavy)
    many = regions.slices.mask(rows[[one != 1 for one in of_inputs(regions, rows, _batch)]])
    harmless = _GATHERS | op_names.MOVES | {_CLIPS}
    updates = regions.named(lambda name: name.endswith("_") and name not in harmless, OP)
    allowed = ~regions.slices.encloses(many) & ~updates
    rounds = _Rounds.of(regions, steps, operators, calls)
    needed = regions.slices.encloses(heavy)
    return _found(regions, steps, "samples", rounds) if rounds.share(regions, allowed, needed) >= MOST else None


def _batch(name: str, dims: Any, types: Any) -> int | None:
    """The images of a convolution, or the rows or columns of a matmul; None if unknown."""
    if name in op_names.CONVOLUTION_OPS:
        x, weight, *_ = [*tensors(dims), (), ()]
        return (x[0] if len(x) == len(weight) else 1) if x and weight else None
    size = gemm_shape(name, dims, types)
    return None if size is None else min(size[:2]) * size[3]


def _numbers(regions: Regions, calls: I8) -> list[set[int]]:
    """The sequence numbers of the nodes that each call of the engine runs."""
    slices, ops = regions.slices, regions.trace.ops
    nodes, call = _inside(regions, calls, regions.backward & (slices.kind == OP))
    found: list[set[int]] = [set() for _ in calls]
    for at, number in zip(call.tolist(), ops.sequence[slices.row[nodes]].tolist(), strict=True):
        found[at].add(number)
    return [numbers - {-1} for numbers in found]


def _inside(regions: Regions, calls: I8, wanted: Mask) -> tuple[I8, I8]:
    """The slices of a mask that begin during calls of the engine, on any thread, and the place of the call of each."""
    start, rows = regions.slices.start, np.flatnonzero(wanted)
    call = np.searchsorted(start[calls], start[rows], side="right") - 1
    during = (call >= 0) & (start[rows] < regions.slices.end[calls[call]])
    return rows[during].astype(np.int64), call[during].astype(np.int64)


def _found(regions: Regions, steps: Steps, kind: Literal["rows", "samples"], rounds: _Rounds) -> GradientLoop:
    slices, calls = regions.slices, rounds.calls
    last = np.setdiff1d(np.arange(len(calls)), rounds.inner)
    first = np.append(0, last[:-1] + 1)
    loop = Intervals(slices.start[calls[first]], slices.end[calls[last]])
    nodes = np.flatnonzero(regions.backward & (slices.kind == OP))
    mine = nodes[loop.contains(slices.start[nodes])]
    again, _ = nodes_of(regions, mine)  # the backward pass of what the nodes compute
    area = merge(loop, slices.area_of(again))
    leaves = np.flatnonzero((slices.kind == OP) & (slices.end - slices.start > LONG_NS))
    leaves = leaves[slices.enclosed(leaves) == 0]
    long_ns = intersect(area, slices.area_of(leaves)).total
    return GradientLoop(
        kind,
        calls,
        len(calls) / steps.count,
        area,
        1 - long_ns / max(1, area.total),
        np.union1d(mine, again).astype(np.int64),
    )
