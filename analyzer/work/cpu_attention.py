"""Unfused attention on the CPU: batched matmul, softmax, batched matmul as separate operators."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.intervals import Intervals, intersect, union
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.regions import Regions

_SOFTMAX = re.compile(r"^aten::(?:_softmax|_safe_softmax|_softmax_backward_data)$")
_BATCHED = re.compile(r"^aten::(?:bmm|baddbmm_?)$")
_OTHER_PRODUCT = re.compile(r"^aten::(?:mm|addmm|_addmm_activation|mkldnn_linear|convolution|convolution_backward)$")
_FUSED = re.compile(r"^aten::_?scaled_dot_product_")  # uses products internally, which the user cannot change


class CpuAttention(Struct, frozen=True):
    """`softmax` are slices, one for each occurrence of the pattern, forward or backward; `area` covers the occurrences
    including their products.
    """

    softmax: I8
    area: Intervals
    products: Intervals


def find_cpu_attention(regions: Regions, window: Intervals) -> CpuAttention:
    """Finds each softmax whose nearest products before and after it on its thread are batched."""
    slices = regions.slices
    softmax, batched, other, fused = (
        regions.named(lambda name, pattern=pattern: pattern.match(name) is not None, OP)  # type: ignore[misc]
        for pattern in (_SOFTMAX, _BATCHED, _OTHER_PRODUCT, _FUSED)
    )
    inside = window.contains(slices.start) & window.contains(slices.end - 1)
    rows = np.flatnonzero((softmax | batched | other) & inside & (slices.nearest(fused) < 0))
    found, starts, ends = [], [], []
    for at in np.flatnonzero(softmax[rows]).tolist():  # a few per layer
        first, last = _run(rows, batched, at, -1), _run(rows, batched, at, +1)
        if first < at < last and slices.thread[rows[first]] == slices.thread[rows[last]]:
            found.append(int(rows[at]))
            starts.append(int(slices.start[rows[first]]))
            ends.append(int(slices.end[rows[last]]))
    area = intersect(union(np.array(starts, np.int64), np.array(ends, np.int64)), window)
    products = union(slices.start[rows[batched[rows]]], slices.end[rows[batched[rows]]])
    return CpuAttention(np.array(found, np.int64), area, intersect(products, area))


def _run(rows: I8, batched: npt.NDArray[np.bool_], at: int, direction: int) -> int:
    """The last of the adjacent batched products in a direction; `at` itself if there is none."""
    while 0 <= at + direction < len(rows) and batched[rows[at + direction]]:
        at += direction
    return at
