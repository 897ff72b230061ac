"""The axes of charts: their labels, and round values for them."""

from __future__ import annotations

import math

from msgspec import Struct


class Tick(Struct, frozen=True):
    """A label, `at` per cent of the axis from the left or from the top."""

    at: float
    label: str


def round_values(end: float, count: int) -> tuple[list[float], int]:
    """At most `count` + 1 round values from 0 to `end`, which is more than 0, and the decimals that they need."""
    rough = end / count
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= rough)
    values = [index * step for index in range(count + 1) if index * step <= end]
    return values, max(0, -math.floor(math.log10(step)))
