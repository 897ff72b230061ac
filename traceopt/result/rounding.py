"""Rounds numbers to the precision of the result document."""

from __future__ import annotations

from typing import Any


def us(ns: Any) -> float:
    """Nanoseconds as microseconds with three decimals."""
    return round(float(ns) / 1e3, 3)


def rate(value: Any) -> float:
    """A count or rate with three decimals."""
    return round(float(value), 3)


def share(value: Any) -> float:
    """A share, clipped to 0..1, with six decimals."""
    return round(min(1.0, max(0.0, float(value))), 6)
