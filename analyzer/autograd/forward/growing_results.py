"""Concatenations onto the result of the one before: each copies all rows so far again."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from traceopt.analyzer.autograd.operator_inputs import Shape, nodes_of, of_inputs, tensors
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps


class GrowingResults(Struct, frozen=True):
    """Shape (len,), in order: the calls, which are slices, the rows that each copies again, and those that it adds."""

    rows: I8
    copied: I8
    added: I8

    def __len__(self) -> int:
        return len(self.rows)


class Append(Struct, frozen=True):
    """A call of torch.cat that adds rows to more rows of the same shape."""

    row: Shape
    copied: int
    added: int

    def grown_by(self, times: int) -> Append:
        return Append(self.row, self.copied + times * self.added, self.added)


def find_growing_results(regions: Regions, steps: Steps) -> GrowingResults:
    """Calls in the window that copy as many rows as another call returned, or return as many as another copies; both
    add as many. Steps may have the shapes of others, so their order does not count. Single rows do not count: so grow
    the keys of a decoder. Neither do calls with a backward pass: the script needs their results.
    """
    rows = np.flatnonzero(regions.named("aten::cat".__eq__, OP)).astype(np.int64)
    appends = of_inputs(regions, rows, _append)
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
