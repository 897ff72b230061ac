"""How many values the multi-tensor (foreach) operators of the optimizer update."""

from __future__ import annotations

from collections import defaultdict
from math import prod
from typing import Any

import numpy as np

from traceopt.analyzer.autograd.operator_inputs import of_inputs, tensors
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.regions import Regions

PREFIX = "aten::_foreach_"


def foreach_updates(regions: Regions) -> I8:
    """The foreach operators in steps of the optimizer. Slices."""
    rows = np.flatnonzero(regions.named(lambda name: name.startswith(PREFIX), OP))
    return rows[regions.updates[rows]].astype(np.int64)


def updated_values(regions: Regions, rows: I8) -> int:
    """How many values these calls update: as many as the operator that gets most of them. 0 if unknown: profilers
    leave the shapes of long lists out.
    """
    of_operator: dict[str, int] = defaultdict(int)
    for name, values in of_inputs(regions, rows, _values):
        if not values:
            return 0
        of_operator[name] += values
    return max(of_operator.values(), default=0)


def _values(name: str, dims: Any, _types: Any) -> tuple[str, int]:
    return name, sum(map(prod, tensors(dims[0]) if dims else []))
