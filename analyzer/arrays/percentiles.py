"""Medians and percentiles as plain floats, and medians of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[Any] | Sequence[float]


def median(values: Values) -> float:
    """Median of numbers without NaN; NaN for an empty input."""
    return float(np.median(values)) if len(values) else float("nan")


def percentiles(values: Values, *wanted: float) -> list[float]:
    """Percentiles with linear interpolation; `wanted` are in percent, `values` must not be empty."""
    found: list[float] = np.percentile(values, wanted).tolist()
    return found


def medians_of_others(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """For each value, the median of the other values in its row; 0 if there are none."""
    count = values.shape[1]
    if count < 2:
        return np.zeros_like(values)
    order = np.argsort(values, axis=1)
    place = np.argsort(order, axis=1)
    ordered = np.take_along_axis(values, order, axis=1)
    # The middle of the remaining values; those at or behind the removed one shift by one.
    low, high = (count - 2) // 2, (count - 1) // 2
    lower = np.take_along_axis(ordered, low + (place <= low), axis=1)
    return np.asarray((lower + np.take_along_axis(ordered, high + (place <= high), axis=1)) / 2)
