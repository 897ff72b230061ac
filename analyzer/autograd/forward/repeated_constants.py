"""Tensors that a step builds several times in the same way, from nothing that is trained: masks, tables, matrices."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np

from traceopt.analyzer.arrays.columns import Columns
from traceopt.analyzer.arrays.grouping import group_rows
from traceopt.analyzer.autograd.nodes import ForwardOperators
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.vocabulary.formulas.byte_formulas import is_pointwise

CREATES = frozenset(
    f"aten::{name}" for name in ("arange", "eye", "full", "linspace", "ones", "to_dense", "tril_indices", "zeros")
)
_COMBINES = frozenset(
    f"aten::{name}" for name in ("cat", "cumsum", "einsum", "mean", "outer", "repeat", "stack", "sum", "tril", "triu")
)
LEAST_OPERATORS = 3  # of a chain: fewer may be alike by chance


class RepeatedConstants(Columns, frozen=True):
    """Slices in order: the operators of all such chains, with the number of equal chains in the step of each. Both have
    shape (len,).
    """

    rows: I8
    times: I8


def find_repeated_constants(regions: Regions, steps: Steps, operators: ForwardOperators) -> RepeatedConstants:
    """Chains of operators that follow each other: the first creates a tensor from no other one, or from a sparse one,
    and all combine tensors without gradients. Equal chains have the same operators, shapes and arguments.
    """
    trace, slices = regions.trace, regions.slices
    rows, step = operators.rows, steps.host_step_of(slices.start[operators.rows])
    creates = regions.named(CREATES.__contains__, OP)[rows]
    combines = regions.named(_combines, OP)[rows] & operators.tracked & ~operators.has_node
    mine = (creates | combines) & (step >= 0)
    if not operators.tracked.any() or not (creates & mine).any():
        return RepeatedConstants(rows[:0], rows[:0])
    chain = np.cumsum(~mine | (np.diff(step, prepend=-1) != 0))[mine]  # what follows another operator begins one
    rows, step, creates = rows[mine], step[mine], creates[mine]
    ops = slices.row[rows]
    kind = group_rows(trace.ops.name[ops], trace.ops.dims[ops], trace.ops.concrete[ops])[1]
    first = np.append(np.flatnonzero(np.diff(chain, prepend=-1)), len(chain))
    spans = [(a + int(creates[a:b].argmax()), b) for a, b in pairwise(first.tolist()) if creates[a:b].any()]
    chains = [slice(a, b) for a, b in spans if b - a >= LEAST_OPERATORS]
    keys = [(int(step[one.start]), kind[one].tobytes()) for one in chains]
    often = Counter(keys)
    found = [(rows[one], often[key]) for one, key in zip(chains, keys, strict=True) if often[key] > 1]
    return RepeatedConstants(
        np.concatenate([rows[:0], *(mine for mine, _ in found)]),
        np.concatenate([rows[:0], *(np.full(len(mine), times) for mine, times in found)]),
    )


def _combines(name: str) -> bool:
    return is_pointwise(name) or name in _COMBINES or name in op_names.MOVES
