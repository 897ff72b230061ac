"""Reads numbers, flags and strings from untrusted JSON: odd values are ignored."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from traceopt.analyzer.tables.schema import I8

MOST = 2**53  # limit for integers; beyond it JSON readers disagree
MOST_US = 1e13  # four months
MOST_ROWS = 10_000
WORD_LENGTH = 300


def listed(text: str) -> list[Any] | None:
    """The list that a JSON text holds, such as the sizes or types of an operator's inputs; None if it holds none."""
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
    return value if isinstance(value, list) else None


def whole(value: object, most: int = MOST) -> int | None:
    """An integer from 0 to `most`, else None."""
    return value if type(value) is int and 0 <= value <= most else None


def amount(value: object, most: float) -> float | None:
    """A number from 0 to `most`, else None."""
    if type(value) not in (int, float):
        return None
    try:
        number = float(value)  # type: ignore[arg-type]  # an int or a float
    except OverflowError:
        return None
    return number if math.isfinite(number) and 0 <= number <= most else None


def flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def word(value: object) -> str | None:
    return value[:WORD_LENGTH] if isinstance(value, str) else None


def table(value: object) -> Mapping[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def rows(value: object) -> list[Mapping[str, Any]]:
    """The objects in a list; empty if it is not a list."""
    return [row for row in value[:MOST_ROWS] if isinstance(row, dict)] if isinstance(value, list) else []


def counts(value: object) -> dict[str, int]:
    """The non-negative integers of an object, by name."""
    found = {name[:WORD_LENGTH]: whole(count) for name, count in table(value).items()}
    return {name: count for name, count in found.items() if count is not None}


def time_ns(value_us: object) -> int | None:
    """Nanoseconds from microseconds; None for anything else."""
    us = amount(value_us, MOST_US)
    return None if us is None else round(us * 1000)


def times_ns(values_us: object) -> I8 | None:
    """Nanoseconds from a list of microseconds; None if any value is odd."""
    if not isinstance(values_us, list) or not all(type(value) in (int, float) for value in values_us):
        return None
    try:
        us = np.array(values_us, np.float64)
    except OverflowError:
        return None
    if not (np.isfinite(us).all() and (us >= 0).all() and (us <= MOST_US).all()):
        return None
    return np.round(us * 1000).astype(np.int64)
