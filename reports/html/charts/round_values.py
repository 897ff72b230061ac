"""Round values for the axes of charts."""

from __future__ import annotations

import math


def round_values(end: float, count: int) -> tuple[list[float], int]:
    """At most `count` + 1 round values from 0 to `end`, which is more than 0, and the decimals that they need."""
    rough = end / count
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= rough)
    values = [index * step for index in range(count + 1) if index * step <= end]
    return values, max(0, -math.floor(math.log10(step)))
