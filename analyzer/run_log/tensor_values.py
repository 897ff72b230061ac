"""What `traceopt run` found in tensors: subnormal numbers, with which the CPU computes slowly, and almost only zeros.

capture/metadata/values/ writes them: subnormals.py and mostly_zero.py. A trace is untrusted input: odd values are
ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from traceopt.analyzer.tables.json_values import amount, flag, rows, table, whole, word

_MOST_SLOWDOWN = 10_000.0
_MOST_DIMENSIONS = 64


class SubnormalTensors(Struct, frozen=True):
    """Tensors of one kind ("parameter", "activation") and shape. `share` of their elements is subnormal. Multiplying
    them takes `slowdown` times as long as if these numbers were 0.
    """

    kind: str
    shape: tuple[int, ...]
    share: float
    slowdown: float


class Subnormals(Struct, frozen=True):
    """`flushed`: the training thread takes subnormal numbers for 0."""

    flushed: bool
    tensors: tuple[SubnormalTensors, ...]


class MostlyZero(Struct, frozen=True):
    """Matrices of one shape, without a gradient: `used_share` of their elements is not zero."""

    shape: tuple[int, ...]
    used_share: float


def read_mostly_zero(value: object) -> tuple[MostlyZero, ...]:
    found = []
    for row in rows(value):
        share, sizes = amount(row.get("share"), 1.0), row.get("shape")
        if share and isinstance(sizes, list) and len(shape := _shape(sizes)) > 1:
            found.append(MostlyZero(shape, 1 - share))
    return tuple(found)


def read_subnormals(value: object) -> Subnormals | None:
    """None if nobody looked for them."""
    row = table(value)
    flushed = flag(row.get("flushed"))
    if flushed is None:
        return None
    found = map(_tensors, rows(row.get("tensors")))
    return Subnormals(flushed, tuple(one for one in found if one is not None))


def _tensors(row: Mapping[str, Any]) -> SubnormalTensors | None:
    kind, share, sizes = word(row.get("kind")), amount(row.get("share"), 1.0), row.get("shape")
    slowdown = amount(row.get("slowdown"), _MOST_SLOWDOWN)
    if kind is None or share is None or not slowdown or not isinstance(sizes, list):
        return None
    return SubnormalTensors(kind, _shape(sizes), share, max(1.0, slowdown))


def _shape(sizes: list[Any]) -> tuple[int, ...]:
    return tuple(size for one in sizes[:_MOST_DIMENSIONS] if (size := whole(one)) is not None)
