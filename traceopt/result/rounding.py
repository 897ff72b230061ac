"""Numbers and places as the result document spells them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.vocabulary.python_frames import CallSite
from traceopt.result.finding import Location


def us(ns: Any) -> float:
    """Nanoseconds as microseconds with three decimals."""
    return round(float(ns) / 1e3, 3)


def rate(value: Any) -> float:
    """A count or rate with three decimals."""
    return round(float(value), 3)


def share(value: Any) -> float:
    """A share clipped to 0..1, with six decimals."""
    return round(min(1.0, max(0.0, float(value))), 6)


def to_location(site: CallSite) -> Location:
    return Location(site.file, site.line, site.function, site.last_line)


def location(facts: Facts, slice_row: int) -> Location | None:
    """The user's code behind a slice; None where no stack was recorded."""
    return locations(facts, [slice_row])[0]


def locations(facts: Facts, slice_rows: Sequence[int]) -> list[Location | None]:
    """As `location`, of all at once: one costs as much as a hundred. A row below 0 is none."""
    rows = np.array(slice_rows, np.int64)
    known = facts.call_sites.of(rows[rows >= 0])
    sites = np.full(len(rows), -1)
    sites[rows >= 0] = known
    return [to_location(facts.call_sites.sites[site]) if site >= 0 else None for site in sites.tolist()]
