"""Rounds numbers to the precision of the result document."""

from __future__ import annotations

from typing import Any

SHARE_DECIMALS = 6


def us(ns: Any) -> float:
    """Nanoseconds as microseconds with three decimals."""
    return round(float(ns) / 1e3, 3)


def rate(value: Any) -> float:
    """A count or rate with three decimals."""
    return round(float(value), 3)


def share(value: Any) -> float:
    """A share, clipped to 0..1, with six decimals."""
    return round(min(1.0, max(0.0, float(value))), SHARE_DECIMALS)


def shown_percent(share: float) -> float:
    """A share in per cent, with the digits that reports print: one decimal below 10."""
    value = round(share, SHARE_DECIMALS) * 100
    return float(round(value)) if abs(value) >= 9.95 else round(value, 1)


def rounded(value: float | None) -> float | None:
    """A rate with six decimals, so that a tiny kernel does not get 0; None stays None."""
    return None if value is None else round(value, 6)
