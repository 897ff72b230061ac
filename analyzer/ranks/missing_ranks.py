"""Which ranks of a job have no trace, in words."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

_GAPS_NAMED = 10


def missing_ranks(world_sizes: Iterable[int | None], known: Iterable[int | None]) -> str | None:
    """ "3 of 16 ranks are missing: ..."; None if no rank is missing or the ranks are unknown."""
    world_size = max((size for size in world_sizes if size is not None), default=0)
    there = sorted({rank for rank in known if rank is not None and 0 <= rank < world_size})
    if not there:
        return None
    gaps = [(before + 1, after - 1) for before, after in pairwise([-1, *there, world_size]) if after - before > 1]
    if not gaps:
        return None
    named = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in gaps[:_GAPS_NAMED])
    if world_size - len(there) == 1:
        return f"Rank {named} of {world_size:,} is missing: no trace was read for it"
    more = " and more" if len(gaps) > _GAPS_NAMED else ""
    return f"{world_size - len(there):,} of {world_size:,} ranks are missing: no trace was read for ranks {named}{more}"
