"""Adding up the gradients of picked rows as an experiment: as the run does it, and after index_select."""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from traceopt.analyzer.arrays.grouping import group_rows
from traceopt.analyzer.autograd.row_gradients import RowGradients
from traceopt.analyzer.facts import Facts
from traceopt.result.experiments import Comparison, RowGradient
from traceopt.rules.savings.measured import MeasuredWork, Part, measured
from traceopt.rules.savings.work.backward_nodes import products_ns


def both_ways(facts: Facts, found: RowGradients) -> MeasuredWork:
    """The backward passes by size, in FP32 because nearly all are; picks from other dimensions are not measured."""
    picked_by: Literal["indexing", "embedding"] = "indexing" if facts.has_gpu else "embedding"
    columns = found.table_rows, found.row_size, found.picked_rows
    first, group = group_rows(*columns)
    parts = list[Part]()
    for index, row in enumerate(first):
        mine = group == index
        table_rows, row_size, picked_rows = (int(column[row]) for column in columns)
        now = RowGradient(table_rows, row_size, picked_rows, "fp32", picked_by)
        fits = bool((found.dim[mine] == 0).all()) and min(table_rows, row_size, picked_rows) > 0
        comparison = Comparison(now, replace(now, picked_by="index_select")) if fits else None
        parts.append(Part(products_ns(facts, found.rows[mine]), comparison))
    return measured(facts, parts)
