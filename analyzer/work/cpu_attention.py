"""Unfused attention on the CPU: batched matmul, softmax, batched matmul as separate operators."""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.intervals import EMPTY, Intervals, intersect, union
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.work.attention import MATH_SDPA, fusible_attention

_SOFTMAX = re.compile(r"^aten::(?:_softmax|_safe_softmax|_softmax_backward_data)$")
_BATCHED = re.compile(r"^aten::(?:bmm|baddbmm_?)$")
_OTHER_PRODUCT = re.compile(r"^aten::(?:mm|addmm|_addmm_activation|mkldnn_linear|convolution|convolution_backward)$")
# Most other products between a softmax and the batched product after it: the value's projection. In the backward pass,
# its two products come before the softmax.
_BETWEEN = {"forward": (0, 1), "backward": (2, 0)}
_DROPOUT = re.compile(r"^aten::(?:bernoulli_?|native_dropout)$")
_OPERATOR = re.compile(r"^aten::_?scaled_dot_product_")  # uses products internally, which the user cannot change


class CpuAttention(Struct, frozen=True):
    """`calls` are slices, one for each softmax or call of the operator; `area` covers them and their products, forward
    and backward. `drops`: weights are dropped; the fused operator of the CPU does not do that.
    """

    calls: I8
    area: Intervals
    products: Intervals
    drops: bool = False


def find_cpu_attention(regions: Regions, window: Intervals) -> CpuAttention:
    """Attention that the script writes itself: each softmax whose nearest products before and after it on its thread
    are batched, if the fused operator can do what runs between them, or all but dropout. The value's projection may run
    there, too.
    """
    found = _find_runs(regions, window)
    own = ~found.of_operator
    written = _attention(regions, window, found.softmax[own], found.start[own], found.end[own])
    if written.drops:
        return written
    own &= fusible_attention(regions, found.before, found.softmax, found.after)
    return _attention(regions, window, found.softmax[own], found.start[own], found.end[own])


def find_cpu_math_attention(regions: Regions, window: Intervals) -> CpuAttention:
    """Calls of scaled_dot_product_attention that fell back to its math backend, with their backward."""
    slices = regions.slices
    math = regions.named(lambda name: name == MATH_SDPA, OP)
    calls = np.flatnonzero(math & window.contains(slices.start) & window.contains(slices.end - 1)).astype(np.int64)
    if not len(calls):
        return CpuAttention(calls, EMPTY, EMPTY)
    found = _find_runs(regions, window)
    start = np.append(slices.start[calls], found.start[found.of_operator])
    end = np.append(slices.end[calls], found.end[found.of_operator])
    return _attention(regions, window, calls, start, end)


class _Runs(Struct, frozen=True):
    """Softmaxes between batched products, outside of the operator, with the start and end of each run in ns. `before`,
    `after`: the nearest of these products. `of_operator`: they are the backward of what the operator did.
    """

    before: I8
    softmax: I8
    after: I8
    start: I8
    end: I8
    of_operator: Mask


def _find_runs(regions: Regions, window: Intervals) -> _Runs:
    slices = regions.slices
    softmax, batched, other, operator = (_matching(regions, p) for p in (_SOFTMAX, _BATCHED, _OTHER_PRODUCT, _OPERATOR))
    in_backward = regions.named(lambda name: name.endswith("_backward_data"), OP)
    inside = window.contains(slices.start) & window.contains(slices.end - 1)
    by_operator = slices.nearest(operator) >= 0
    rows = np.flatnonzero((softmax | batched | other) & inside & ~by_operator)
    products = np.flatnonzero(batched[rows])
    found, starts, ends = [], [], []
    for at in np.flatnonzero(softmax[rows]).tolist():  # a few per layer
        before, after = _BETWEEN["backward" if in_backward[rows[at]] else "forward"]
        first, last = (_run(rows, batched, softmax, at, *way) for way in ((-1, before), (+1, after)))
        if first < at < last and slices.thread[rows[first]] == slices.thread[rows[last]]:
            nearest = np.searchsorted(products, at)
            found.append((rows[products[nearest - 1]], rows[at], rows[products[nearest]]))
            starts.append(int(slices.start[rows[first]]))
            ends.append(int(slices.end[rows[last]]))
    before_products, softmaxes, after_products = np.array(found, np.int64).reshape(-1, 3).T
    of_operator = _in_backward_of(regions, softmaxes, by_operator)
    starts_ns, ends_ns = np.array(starts, np.int64), np.array(ends, np.int64)
    return _Runs(before_products, softmaxes, after_products, starts_ns, ends_ns, of_operator)


def _attention(regions: Regions, window: Intervals, calls: I8, start: I8, end: I8) -> CpuAttention:
    slices = regions.slices
    area = intersect(union(start, end), window)
    products = _matching(regions, _BATCHED) | _matching(regions, _OTHER_PRODUCT)
    drops = _matching(regions, _DROPOUT) & area.contains(slices.start)
    inside = intersect(slices.area_of(products), area)
    return CpuAttention(calls, area, inside, bool(drops.any()))


def _matching(regions: Regions, pattern: re.Pattern[str]) -> Mask:
    return regions.named(lambda name: pattern.match(name) is not None, OP)


def _in_backward_of(regions: Regions, rows: I8, forward: Mask) -> Mask:
    """Whether each slice ran in the backward of the forward work: autograd's sequence numbers are the same."""
    slices, sequence = regions.slices, regions.trace.ops.sequence
    numbers = sequence[slices.row[forward & (slices.kind == OP)]]
    node = slices.ancestor(rows, regions.backward & (slices.kind == OP))
    belongs = np.asarray(node >= 0)
    belongs[belongs] = np.isin(sequence[slices.row[node[belongs]]], numbers[numbers >= 0])
    return belongs


def _run(rows: I8, batched: Mask, softmax: Mask, at: int, direction: int, most_between: int) -> int:
    """The last of the nearest batched products in a direction, after at most so many other products; `at` itself if
    there is none.
    """
    first = at + direction
    while most_between and 0 <= first < len(rows) and not (batched | softmax)[rows[first]]:
        first += direction
        most_between -= 1
    while 0 <= first < len(rows) and batched[rows[first]]:
        at, first = first, first + direction
    return at
