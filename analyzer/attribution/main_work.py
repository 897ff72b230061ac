"""The kind of work that takes most of the GPU's time."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import Categorical, distinct
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.vocabulary.causes.work_kinds import WorkKind, work_kind
from traceopt.analyzer.vocabulary.kernels.kernel_names import is_gradient

NEARLY_ALL = 0.95  # of the time: work of which so much is in the backward pass is called its work


class MainWork(Struct, frozen=True):
    """`rows` index the device's work; `dtype` is the type in which they multiply, "" if unknown or if they do not."""

    kind: WorkKind
    dtype: str
    rows: I8
    busy_ns: int  # when any of the rows ran, in the window
    is_backward: bool


def find_main_work(regions: Regions, dtype: Categorical) -> MainWork | None:
    """The compute kernels grouped by kind and type; None without any. `dtype`: of the device's work."""
    gpu, names = regions.gpu, regions.trace.names
    rows = np.flatnonzero(gpu.is_compute & gpu.is_inside)
    if not len(rows):
        return None
    kernels, kernel = distinct(gpu.work.name[rows])
    operators, operator = distinct(regions.op_of_work[rows] + 1)
    pairs, pair = distinct(kernel * len(operators) + operator)
    numbers: dict[tuple[WorkKind, str], int] = {}
    known_kinds = [
        work_kind(names[op - 1] if op else "", names[kernels[at // len(operators)]])
        for at, op in ((at, int(operators[at % len(operators)])) for at in pairs.tolist())
    ]
    types = list(dtype.values)
    both, of_row = distinct(pair * len(types) + dtype.codes[rows])
    kinds = [(known_kinds[at // len(types)], types[at % len(types)]) for at in both.tolist()]
    group = np.array([numbers.setdefault(one, len(numbers)) for one in kinds])[of_row]
    time_ns = np.bincount(group, weights=gpu.in_window[rows])
    largest = int(time_ns.argmax())
    mine = rows[group == largest]
    mask = np.zeros(len(gpu.work), bool)
    mask[mine] = True
    gradients = np.array([is_gradient(names[code]) for code in kernels] or [False])[kernel[group == largest]]
    backward = gradients | regions.work_under(regions.backward)[mine]
    backward_ns = int(gpu.in_window[mine[backward]].sum())
    kind, name = list(numbers)[largest]
    return MainWork(kind, name, mine, round(gpu.spent_ns(mask)), backward_ns >= NEARLY_ALL * time_ns[largest])
