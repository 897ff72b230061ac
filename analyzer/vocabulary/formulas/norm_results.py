"""How many numbers a norm along some dimensions gives, from the recorded arguments."""

from __future__ import annotations

import re
from math import prod
from typing import Any


def results_of_norm(dims: Any, values: Any) -> int:
    """Results of a Euclidean norm that leaves the last dimension as it is; 0 for any other norm."""
    if not (isinstance(dims, list) and dims and dims[0] and isinstance(values, list) and len(values) > 2):
        return 0
    size, reduced = dims[0], re.findall(r"-?\d+", str(values[2]))
    if str(values[1]) not in ("2", "2.") or not reduced or not all(type(n) is int for n in size):
        return 0
    axes = {int(axis) % len(size) for axis in reduced}
    return 0 if len(size) - 1 in axes else prod(n for axis, n in enumerate(size) if axis not in axes)
