"""Collectives that the ranks of a group call differently: another operation, size or type."""

from __future__ import annotations

import math
from collections.abc import Hashable

import numpy as np
from msgspec import Struct

from traceopt.analyzer.companions.flight_recorder.calls import Calls
from traceopt.analyzer.companions.flight_recorder.dump import Operation
from traceopt.analyzer.tables.schema import I8
from traceopt.result.finding import Location

# What all ranks of a collective must have in common, besides its name. Operations that are not listed may differ.
_SAME_INPUTS = frozenset(
    """
    all_reduce allreduce_coalesced reduce _reduce_oop broadcast all_gather _all_gather_base all_gather_single
    all_gather_into_tensor_coalesced reduce_scatter _reduce_scatter_base reduce_scatter_single
    reduce_scatter_tensor_coalesced gather
    """.split()  # noqa: SIM905
)
_SAME_OUTPUTS = frozenset(
    """
    all_reduce allreduce_coalesced broadcast _broadcast_oop all_gather _all_gather_base all_gather_single
    all_gather_into_tensor_coalesced reduce_scatter _reduce_scatter_base reduce_scatter_single
    reduce_scatter_tensor_coalesced scatter
    """.split()  # noqa: SIM905
)


class Side(Struct, frozen=True):
    """Ranks that make the same call. `site`: the user's line of it."""

    ranks: tuple[int, ...]
    operation: Operation
    site: Location | None


class Mismatch(Struct, frozen=True):
    """The first collective of a group that its ranks call differently. `sides`: most ranks first."""

    group: int
    sequence: int
    sides: list[Side]

    @property
    def is_of_order(self) -> bool:
        """The ranks call different operations, and not one operation with different tensors."""
        return len({side.operation.name for side in self.sides}) > 1


def find_mismatches(calls: Calls) -> list[Mismatch]:
    """The first differing collective of each group: after it, numbers may belong to different calls."""
    rows = np.flatnonzero(~calls.is_p2p)
    if not len(rows):
        return []
    rows = rows[np.lexsort((calls.rank[rows], calls.sequence[rows], calls.group[rows]))]
    kind = _kinds(calls)[calls.operation[rows]]
    call = np.stack([calls.group[rows], calls.sequence[rows]])
    of_rank = _number_in_run(np.vstack([call, calls.rank[rows]]))  # the n-th operation of a coalesced batch
    order = np.lexsort((of_rank, call[1], call[0]))
    rows, kind, keys = rows[order], kind[order], np.vstack([call[:, order], of_rank[order]])
    starts = np.flatnonzero(_begins(keys))
    differs = np.minimum.reduceat(kind, starts) != np.maximum.reduceat(kind, starts)
    first: dict[int, int] = {}
    for index in np.flatnonzero(differs).tolist():
        first.setdefault(int(keys[0, starts[index]]), index)
    ends = np.append(starts[1:], len(rows))
    return [_mismatch(calls, rows[starts[i] : ends[i]], kind[starts[i] : ends[i]]) for i in first.values()]


def _kinds(calls: Calls) -> I8:
    """A number for each operation; ranks of one collective must have the same."""
    index: dict[Hashable, int] = {}
    return np.array([index.setdefault(_kind(operation), len(index)) for operation in calls.operations], np.int64)


def _kind(operation: Operation) -> Hashable:
    name = operation.name
    return (
        name,
        (_elements(operation.input_sizes), operation.input_dtypes) if name in _SAME_INPUTS else None,
        (_elements(operation.output_sizes), operation.output_dtypes) if name in _SAME_OUTPUTS else None,
    )


def _elements(sizes: tuple[tuple[int, ...], ...]) -> int:
    """NCCL sees one buffer, so the shape of its elements does not matter."""
    return sum(math.prod(size) for size in sizes)


def _begins(keys: I8) -> I8:
    """Where a run of equal columns begins. Shape of `keys`: (keys, rows)."""
    return np.append(True, (keys[:, 1:] != keys[:, :-1]).any(axis=0))


def _number_in_run(keys: I8) -> I8:
    """The number of each row among those with the same keys, from 0."""
    begins = _begins(keys)
    starts = np.flatnonzero(begins)
    return np.arange(keys.shape[1]) - starts[np.cumsum(begins) - 1]


def _mismatch(calls: Calls, rows: I8, kind: I8) -> Mismatch:
    sides = [
        Side(tuple(calls.rank[same].tolist()), calls.operations[calls.operation[same[0]]], calls.usual_site(same))
        for same in (rows[kind == one] for one in np.unique(kind))
    ]
    sides.sort(key=lambda side: (-len(side.ranks), side.ranks))
    return Mismatch(int(calls.group[rows[0]]), int(calls.sequence[rows[0]]), sides)
