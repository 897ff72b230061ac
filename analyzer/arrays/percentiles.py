"""Medians and percentiles as plain floats."""

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
