"""Rows grouped by name, with the total of an amount for each name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import numbered, split


class NameTotal(Struct, frozen=True):
    """The rows with one name, in their original order, and the total of their amounts."""

    name: str  # "" if the rows have none
    rows: npt.NDArray[np.int64]
    total: int


def totals_by_name(
    names: Sequence[str], codes: npt.NDArray[np.integer], rows: npt.NDArray[np.integer], amount: npt.NDArray[np.int64]
) -> list[NameTotal]:
    """Rows grouped by the name of their code (-1: no name), largest total first. The arrays have one shape."""
    known, group = numbered(codes)
    totals = np.bincount(group, weights=amount, minlength=len(known)).astype(np.int64)
    members = split(np.arange(len(rows)), group, len(known)) if len(known) else []
    return [
        NameTotal(names[known[i]] if known[i] >= 0 else "", rows[members[i]].astype(np.int64), int(totals[i]))
        for i in np.argsort(-totals, kind="stable")
    ]
