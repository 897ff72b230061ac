"""The operators that work on the positions of padded batches, and how much less they would do without padding."""

from __future__ import annotations

from math import prod

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.run_log.padding import Padding
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import Slices
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.work.sizes.sized_calls import Shape, SizedCalls, Sizes, is_product


class PaddedWork(Struct, frozen=True):
    """The outermost operators with a dimension of the padded size. `rows` are slices, in order. The work of each grows
    with the size to the power of `power`: 1 or 2.

    `fixed`: a layer takes all positions of a sample as one vector, so the size cannot change.
    """

    rows: I8
    power: npt.NDArray[np.int64]
    fixed: bool


def find_padded_work(calls: SizedCalls, slices: Slices, padding: Padding) -> PaddedWork:
    power = calls.of_each(lambda sizes: _power(sizes, padding)).astype(np.int64)
    rows = slices.outermost(slices.mask(calls.rows[power > 0])).astype(np.int64)
    return PaddedWork(rows, power[np.searchsorted(calls.rows, rows)], _is_fixed(calls, padding))


def _power(sizes: Sizes, padding: Padding) -> int:
    power = max((_power_of(shape, padding) for shape in sizes.shapes), default=0)
    if sizes.name == "aten::embedding" and (padding.samples, padding.size) in sizes.shapes:
        return 1
    return 2 * min(1, power) if op_names.is_attention(sizes.name) else power


def _power_of(shape: Shape, padding: Padding) -> int:
    """A dimension of features may happen to have the padded size, so only those of positions count."""
    samples, size = padding.samples, padding.size
    if len(shape) < 3:
        return int(samples * size in shape)
    if shape[-2:] == (size, size) and (len(shape) > 3 or shape[0] != samples):
        return 2  # each position is compared with each
    return int(size in shape[1:] or shape[:2] == (size, samples))


def _is_fixed(calls: SizedCalls, padding: Padding) -> bool:
    """Whether a matmul works on samples that were flattened, positions and features together."""
    flat = {
        (padding.samples, prod(shape[1:]))
        for size in calls.sizes
        for shape in size.shapes
        if len(shape) > 2 and shape[0] == padding.samples and min(shape[1:]) > 1 and prod(shape[1:]) >= padding.size
    }
    return any(is_product(size.name) and not flat.isdisjoint(size.shapes) for size in calls.sizes)
