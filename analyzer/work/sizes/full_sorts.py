"""Sorts of which only the first values are taken: the operator after each cuts the sorted dimension."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.arrays.columns import Columns
from traceopt.analyzer.arrays.grouping import group_rows
from traceopt.analyzer.tables.json_values import listed
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps

SORTS = frozenset({"aten::sort", "aten::argsort"})
CUT = "aten::slice"
MOST_KEPT = 1 / 8  # of the values: to find more of them takes about as long as sorting


class FullSorts(Columns, frozen=True):
    """Shape (len,): the calls, which are slices in order, how many values each sorts, and how many are taken."""

    rows: I8
    values: I8
    kept: I8


def find_full_sorts(regions: Regions, steps: Steps) -> FullSorts:
    """Calls of the training thread, in the window, whose shapes and arguments were recorded."""
    trace, slices = regions.trace, regions.slices
    operators = slices.mask(slices.outermost(slices.kind == OP))
    rows = regions.calls(operators & regions.named(SORTS.__contains__, OP), steps)
    cuts = slices.next_outermost(rows, operators)
    rows, cuts = rows[cuts >= 0], cuts[cuts >= 0]
    if not len(rows):
        return FullSorts(rows, rows, rows)
    ops, after = slices.row[rows], slices.row[cuts]
    is_cut = regions.named(CUT.__eq__, OP)[cuts]
    columns = trace.ops.dims[ops], trace.ops.concrete[ops], trace.ops.dims[after], trace.ops.concrete[after]
    first, group = group_rows(*columns)
    texts = [[trace.texts[column[at]] if column[at] >= 0 else "" for column in columns] for at in first.tolist()]
    values, kept = np.array([_values_and_kept(*text) for text in texts], np.int64)[group].T
    mine = is_cut & (kept > 0) & (kept <= MOST_KEPT * values)
    return FullSorts(rows[mine], values[mine], kept[mine])


def _values_and_kept(dims: str, arguments: str, cut_dims: str, cut_arguments: str) -> tuple[int, int]:
    """How many values a sort and a cut of its result leave of how many; (0, 0) if they do not fit."""
    match listed(dims), listed(arguments), listed(cut_dims), listed(cut_arguments):
        case [[*shape], *_], [*_, dim, _], [[*cut], *_], [_, cut_dim, "" | "0", end, "1"] if shape and shape == cut:
            try:
                at, cut_at, kept = int(dim) % len(shape), int(cut_dim) % len(shape), int(end)
            except ValueError:
                return 0, 0
            return (shape[at], kept) if at == cut_at and type(shape[at]) is int and kept > 0 else (0, 0)
    return 0, 0
