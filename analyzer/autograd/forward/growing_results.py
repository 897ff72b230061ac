"""Concatenations onto the result of the one before: each copies all rows so far again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.arrays.columns import Columns
from traceopt.analyzer.autograd.operator_inputs import Shape, nodes_of, of_inputs, tensors
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps

HEADS_DIMENSIONS = 4  # of keys and values: batch, heads, tokens, width
TOKEN_AXES = (1, 2)


class GrowingResults(Columns, frozen=True):
    """Shape (len,), in order: the calls, which are slices, the rows that each copies again, and those that it adds."""

    rows: I8
    copied: I8
    added: I8


class Append(Struct, frozen=True):
    """A call of torch.cat that adds rows to more rows of the same shape. `axis`: the dimension that grows."""

    row: Shape
    copied: int
    added: int
    axis: int = 0

    def grown_by(self, times: int) -> Append:
        return replace(self, copied=self.copied + times * self.added)


def find_growing_results(regions: Regions, steps: Steps) -> GrowingResults:
    """Calls in the window that copy as many rows as another call returned, or return as many as another copies; both
    add as many. Steps may have the shapes of others, so their order does not count. Single rows do not count: so grow
    the keys of a decoder. Neither do calls with a backward pass: the script needs their results.
    """
    return _growing(regions, steps, _append)


def find_growing_caches(regions: Regions, steps: Steps) -> GrowingResults:
    """The same of tensors of keys or values, (batch, heads, tokens, width) or (batch, tokens, heads, width), which grow
    by one token in each round.
    """
    return _growing(regions, steps, _append_token)


def _growing(regions: Regions, steps: Steps, append: Callable[[str, Any, Any], Append | None]) -> GrowingResults:
    rows = np.flatnonzero(regions.named("aten::cat".__eq__, OP)).astype(np.int64)
    appends = of_inputs(regions, rows, append)
    seen = set(appends)
    grows = [
        append is not None and not seen.isdisjoint((append.grown_by(1), append.grown_by(-1))) for append in appends
    ]
    inside = steps.window.contains(regions.slices.start[rows]) & np.array(grows, bool)
    if inside.any():
        inside[nodes_of(regions, rows)[1]] = False
    found = [one for one, mine in zip(appends, inside.tolist(), strict=True) if mine and one is not None]
    copied, added = [one.copied for one in found], [one.added for one in found]
    return GrowingResults(rows[inside], np.array(copied, np.int64), np.array(added, np.int64))


def _append(_name: str, dims: Any, _types: Any) -> Append | None:
    shapes = tensors(dims[0]) if dims else []
    if len(shapes) != 2 or not all(shapes) or shapes[0][1:] != shapes[1][1:]:
        return None
    copied, added = shapes[0][0], shapes[1][0]
    return Append(shapes[0][1:], copied, added) if copied > added > 1 else None


def _append_token(_name: str, dims: Any, _types: Any) -> Append | None:
    shapes = tensors(dims[0]) if dims else []
    if len(shapes) != 2 or len(shapes[0]) != HEADS_DIMENSIONS or len(shapes[1]) != HEADS_DIMENSIONS:
        return None
    differs = [axis for axis, sizes in enumerate(zip(*shapes, strict=True)) if sizes[0] != sizes[1]]
    if len(differs) != 1 or differs[0] not in TOKEN_AXES:
        return None
    [axis] = differs
    copied, added = shapes[0][axis], shapes[1][axis]
    row = (*shapes[0][:axis], *shapes[0][axis + 1 :])
    return Append(row, copied, added, axis) if copied > added == 1 else None
