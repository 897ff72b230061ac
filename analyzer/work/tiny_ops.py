"""Operators of a CPU-only run, which are so small that calling them costs more than their computation, and what the
number of parameters costs.
"""

from __future__ import annotations

from math import prod

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values, group_rows
from traceopt.analyzer.arrays.intervals import Intervals, merge, subtract
from traceopt.analyzer.tables.json_values import listed
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.timeline.call_tree import OP, Slices
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import op_names

TINY_NS = 30_000
TINY_ELEMENTS = 16_384  # arithmetic on more of them takes microseconds, as much as a call
MOST_ELEMENTS = 1 << 60  # of a damaged shape


class CalledOps(Struct, frozen=True):
    """Outermost operators in order of time, shape (len,). From `start` to `end` is the call and a little of the Python
    that follows it. `tiny`: kinds of operators with a median duration of at most 30 us; single calls may take longer,
    because the thread may lose its core. Arithmetic on more than 16,384 elements is not tiny. `parameters`: gradients
    that were accumulated right after each, as after a node of the backward pass whose inputs are parameters.
    """

    rows: I8  # of the slices
    start: I8
    end: I8
    tiny: npt.NDArray[np.bool_]
    parameters: I8

    @property
    def only_tiny(self) -> CalledOps:
        return self._where(self.tiny)

    def only(self, rows: npt.NDArray[np.integer]) -> CalledOps:
        """The operators among these slices."""
        return self._where(np.isin(self.rows, rows))

    def outside(self, slices: Slices, calls: Mask) -> CalledOps:
        """The operators that are not called by these slices."""
        return self._where(slices.ancestor(self.rows, calls) < 0)

    def indexed_places(self, regions: Regions) -> int:
        """At how many different places these operators index tensors; 0 where the places were not recorded. A number
        in a vector, as in a schedule, is no place of a batch.
        """
        ops, texts = regions.trace.ops, regions.trace.texts
        at = regions.slices.row[self.rows[regions.named(op_names.INDEXING.__contains__, OP)[self.rows]]]
        at = at[ops.dims[at] >= 0]
        first, _ = group_rows(ops.dims[at], ops.concrete[at])
        inputs = {row: listed(texts[ops.dims[row]]) for row in at[first].tolist()}
        return len({ops.concrete[row] for row, dims in inputs.items() if dims and len(dims[0]) > 1})

    def between(self, regions: Regions, steps: Steps, *names: str) -> float:
        """How many operators with these names run from the first to the last of these in a step. What comes before
        their backward pass is not between them.
        """
        step, wanted = steps.host_step_of(self.start), regions.named(names.__contains__, OP)
        forward = ~regions.named(op_names.is_backward, OP)[self.rows]
        at, counts = regions.slices.start[wanted], []
        for number in distinct_values(step[forward]).tolist():
            mine = forward & (step == number)
            counts.append(np.count_nonzero((at > self.start[mine].min()) & (at < self.end[mine].max())))
        return float(np.median(counts)) if counts else 0.0

    def turns(self, group: npt.NDArray[np.integer], least: int) -> list[tuple[int, int]]:
        """Pairs of groups of which one follows the other at least this often. `group` is that of each slice, -1: none;
        shape (len(slices),).
        """
        before, after = group[self.rows[:-1]], group[self.rows[1:]]
        changes = np.stack((before, after))[:, (before != after) & (before >= 0) & (after >= 0)]
        pairs, count = np.unique(np.sort(changes, axis=0), axis=1, return_counts=True)
        return [(int(one), int(other)) for one, other in pairs[:, count >= least].T]

    def functions_of(self, ops: CalledOps, slices: Slices, functions: npt.NDArray[np.bool_], least: float) -> I8:
        """The calls of functions that call some of these operators, if those take at least a share `least` of the time
        of all operators that the functions call; empty if not, or if a function is not known. `functions`: a mask of
        slices.
        """
        around = slices.ancestor(self.rows, functions)
        mine = np.isin(self.rows, ops.rows)
        calls = distinct_values(around[mine])
        time = self.end - self.start
        if not len(calls) or calls[0] < 0 or time[mine].sum() < least * time[np.isin(around, calls)].sum():
            return np.empty(0, np.int64)
        return calls.astype(np.int64)

    def share_in_calls(self, slices: Slices, calls: Mask, most: int) -> float:
        """Of these operators: those that the `most` calls with most of them run. `calls`: a mask of slices."""
        around = slices.ancestor(self.rows, calls)
        _, counts = np.unique(around[around >= 0], return_counts=True)
        return float(np.sort(counts)[::-1][:most].sum()) / max(1, len(self.rows))

    def _where(self, mine: npt.NDArray[np.bool_]) -> CalledOps:
        return CalledOps(self.rows[mine], self.start[mine], self.end[mine], self.tiny[mine], self.parameters[mine])


def find_called_ops(regions: Regions, thread: int, model_work: Intervals, profiler: Intervals) -> CalledOps:
    """The operators of a thread within an area. Autograd's gradient accumulation is left out: no line calls it.
    `profiler` is when the profiler ran, which does not make an operator large.
    """
    slices = regions.slices
    accumulation = regions.named(op_names.is_gradient_accumulation, OP)
    rows = _on_thread(slices, slices.kind == OP, thread)
    rows = rows[model_work.contains(slices.start[rows])]
    start, end = slices.start[rows], slices.end[rows]
    until = np.minimum(np.append(start[1:], np.iinfo(np.int64).max), end + TINY_NS)
    added = accumulation[rows]
    own = np.flatnonzero(~added)
    after = np.cumsum(~added)[added] - 1  # the operator before each accumulation, as an index of `own`
    parameters = np.bincount(after[after >= 0], minlength=len(own)).astype(np.int64)
    rows, start, end, until = rows[own], start[own], end[own], until[own]
    tiny = _is_tiny(slices.name[rows], end - start - profiler.within(start, end))
    tiny &= ~(regions.named(op_names.is_arithmetic, OP)[rows] & (input_elements(regions, rows) > TINY_ELEMENTS))
    return CalledOps(rows, start, until, tiny, parameters)


class ParameterWork(Struct, frozen=True):
    """What is done for each parameter, however small it is: autograd adds to its gradient, `zero_grad` and the
    optimizer visit it. `area` leaves out the optimizer's larger operators, which may be arithmetic. `count`: parameters
    with a gradient in a step.
    """

    area: Intervals
    count: float


def find_parameter_work(regions: Regions, thread: int, optimizer: Intervals, steps: Steps) -> ParameterWork:
    """`optimizer` is when the thread ran `Optimizer.step` and `zero_grad`."""
    slices = regions.slices
    added = _on_thread(slices, regions.named(op_names.is_gradient_accumulation, OP), thread)
    added = added[steps.host_window.contains(slices.start[added])]
    ops = _on_thread(slices, slices.kind == OP, thread)
    large = ops[(slices.duration_of(ops) > TINY_NS) & optimizer.contains(slices.start[ops])]
    visits = subtract(optimizer, slices.area_of(large))
    return ParameterWork(merge(visits, slices.area_of(added)), len(added) / steps.count)


def _on_thread(slices: Slices, wanted: Mask, thread: int) -> npt.NDArray[np.int64]:
    """The outermost wanted slices of a thread."""
    rows = slices.outermost(wanted)
    return np.asarray(rows[slices.thread[rows] == thread], np.int64)


def input_elements(regions: Regions, rows: I8) -> I8:
    """Elements of each operator's largest input, at most MOST_ELEMENTS; 0 where no shape was recorded."""
    trace = regions.trace
    codes, code = np.unique(trace.ops.dims[regions.slices.row[rows]], return_inverse=True)
    sizes = [_largest(trace.texts[one]) if one >= 0 else 0 for one in codes.tolist()]
    return np.array(sizes, np.int64)[code]


def _largest(dims: str) -> int:
    """The elements of the largest tensor of the profiler's "Input Dims", also in a list; 0 if it is damaged."""
    inputs = listed(dims) or []
    tensors = [*inputs, *(one for many in inputs if isinstance(many, list) for one in many)]
    known = [prod(tensor) for tensor in tensors if _is_shape(tensor)]
    return min(max(known, default=0), MOST_ELEMENTS)


def _is_shape(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, int) and one >= 0 for one in value)


def _is_tiny(names: npt.NDArray[np.integer], duration: I8) -> npt.NDArray[np.bool_]:
    kinds, kind = np.unique(names, return_inverse=True)
    order = np.lexsort((duration, kind))
    first = np.searchsorted(kind[order], np.arange(len(kinds)))
    count = np.bincount(kind, minlength=len(kinds))
    median = duration[order][first + (count - 1) // 2] if len(kinds) else duration
    return np.asarray(median[kind] <= TINY_NS) if len(kinds) else np.empty(0, bool)
