"""Medians and percentiles as plain floats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[Any] | Sequence[float]


def median(values: Values) -> float:
    """The median of numbers without NaN; NaN where there are none."""
    return float(np.median(values)) if len(values) else float("nan")


def percentiles(values: Values, *wanted: float) -> list[float]:
    """Percentiles of one number and more, linear between two; `wanted` are per cent."""
    found: list[float] = np.percentile(values, wanted).tolist()
    return found
