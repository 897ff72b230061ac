"""Lookups in trained tables as experiments: of many tables as one, and with sparse gradients."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from traceopt.analyzer.arrays.grouping import group_rows
from traceopt.analyzer.autograd.operator_inputs import nodes_of
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.work.tiny_ops import CalledOps
from traceopt.result.experiments import MOST_ELEMENTS, MOST_PARAMETERS, Comparison, Lookup
from traceopt.rules.savings.measured import MeasuredWork, Part, measured


def with_gradients(facts: Facts, ops: CalledOps) -> CalledOps:
    """These operators; of lookups also what adds up their gradients and what joins their results, forward and backward,
    which need not be tiny: one table has one of each.
    """
    slices, regions, called, gradients = facts.slices, facts.regions, facts.called_ops.rows, facts.row_gradients
    mine = np.isin(gradients.forward, ops.rows)
    following = np.flatnonzero(np.isin(called, gradients.forward[mine])) + 1
    joins = called[np.minimum(following, len(called) - 1)]
    joins = joins[regions.named(op_names.JOINS.__contains__, OP)[joins]]
    nodes, _ = nodes_of(regions, joins)
    outer = slices.ancestor(np.concatenate((gradients.rows[mine], nodes)), slices.mask(called))
    return facts.called_ops.only(np.concatenate((ops.rows, joins, outer)))


def in_one_table(facts: Facts, lookups: I8, time_ns: float) -> MeasuredWork:
    """A loop that looks up rows in one table after the other, in FP32 because nearly all are. `lookups`: its slices;
    `time_ns` of the loop per step, forward and backward.
    """
    gradients = facts.row_gradients
    mine = gradients.take(np.isin(gradients.forward, lookups))
    sizes = mine.table_rows, mine.row_size, mine.picked_rows
    first, group = group_rows(*sizes)
    parts = list[Part]()
    for number, row in enumerate(first):
        calls = np.count_nonzero(group == number)
        table_rows, row_size, picked_rows = (int(column[row]) for column in sizes)
        parts.append(
            Part(
                time_ns * calls / len(lookups),
                _joined(round(calls / facts.steps.count), table_rows, row_size, picked_rows),
                replaced=True,
            )
        )
    return measured(facts, parts)


def _joined(tables: int, table_rows: int, row_size: int, picked_rows: int) -> Comparison | None:
    fits = 1 < tables <= MOST_PARAMETERS and tables * max(table_rows, picked_rows) * row_size <= MOST_ELEMENTS
    if not fits or min(table_rows, row_size, picked_rows) < 1:
        return None
    now = Lookup(tables, table_rows, row_size, picked_rows, "fp32")
    return Comparison(now, Lookup(1, tables * table_rows, row_size, tables * picked_rows, "fp32"))


def with_sparse_gradients(facts: Facts, time_ns: float) -> MeasuredWork | None:
    """Lookups of few rows, their gradients and the update by SGD, in FP32 because nearly all are; None if there are
    tables of several sizes. `time_ns` of all this per step.
    """
    found = facts.dense_gradients
    tables = round(len(found.lookups) / facts.steps.count)
    if len(found.tables) != 1 or not 0 < tables <= MOST_PARAMETERS or not found.used:
        return None
    ((rows, size),) = found.tables
    if not 0 < tables * rows * size <= MOST_ELEMENTS:
        return None
    now = Lookup(tables, rows, size, max(1, round(found.used * rows)), "fp32", updated=True)
    return measured(facts, [Part(time_ns, Comparison(now, replace(now, sparse=True)))])
