"""How much of the batches is padding, as `traceopt run` saw it.

capture/metadata/values/padding.py writes it. A trace is untrusted input: odd values are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from traceopt.analyzer.run_log.constructions import Construction, read_construction
from traceopt.analyzer.tables.json_values import amount, rows, whole, word

_MOST_SIZE = 1 << 40


class Padding(Struct, frozen=True):
    """Batches of `samples` samples that are padded to `size` positions, of which `longest` are used by the longest
    sample of a batch, on average. `batches` were looked at. `collate` is where the function begins that joins items to
    a batch, if it is the script's.
    """

    size: int
    samples: int
    batches: int
    longest: float
    collate: Construction | None

    @property
    def used_share(self) -> float:
        """Of the positions, what is left if a batch is padded to its longest sample."""
        return self.longest / self.size


def read_padding(value: object) -> tuple[Padding, ...]:
    """Most padding first."""
    found = [one for row in rows(value) if (one := _padding(row)) is not None]
    return tuple(sorted(found, key=lambda padding: padding.used_share))


def _padding(row: Mapping[str, Any]) -> Padding | None:
    size, samples, batches = (whole(row.get(name)) for name in ("size", "samples", "batches"))
    longest = amount(row.get("longest"), _MOST_SIZE)
    if not size or not samples or not batches or not longest or longest > size:
        return None
    at = word(row.get("at"))
    return Padding(size, samples, batches, longest, read_construction([[at]]) if at else None)
