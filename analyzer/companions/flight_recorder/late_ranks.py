"""Ranks that join collectives so late that the others wait for them.

Two measures, because the clocks of hosts differ. Durations of the collectives on the GPU (TORCH_NCCL_ENABLE_TIMING=1)
include the wait: the last rank has the shortest, and no clock is compared. Without them, only a delay counts that is
far beyond what clocks differ by and what a host runs ahead of its GPU.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceopt.analyzer.companions.flight_recorder.calls import Calls
from traceopt.analyzer.tables.schema import I8
from traceopt.result.finding import Location

MIN_COLLECTIVES = 10  # timed ones, to say which rank is usually the last
CLOCK_NS = 5_000_000_000  # what clocks of hosts, and launches ahead of the GPU, may differ by


class LateRank(Struct, frozen=True):
    """A rank that others waited for.

    `collectives` of `compared` found it the last; `waited_ns` is what the typical other rank waited for it in all of
    them, `recorded_ns` the time that they cover. The last fields describe the collective with the longest wait;
    `after`: the line of the call before, from where on the rank was busy with something else.
    """

    rank: int
    measured: bool  # by durations on the GPU; False: by the clocks of the hosts
    collectives: int
    compared: int
    waited_ns: int
    recorded_ns: int
    longest_ns: int
    timeout_ns: int
    group: int
    operation: str
    sequence: int
    site: Location | None
    after: Location | None


def find_late_ranks(calls: Calls) -> list[LateRank]:
    """Ranks that came last, with how long the others waited for each. Longest wait first."""
    rows = np.flatnonzero(~calls.is_p2p & (calls.created_ns > 0))
    if not len(rows):
        return []
    key = np.stack([calls.group[rows], calls.sequence[rows]])
    order = np.lexsort((calls.rank[rows], key[1], key[0]))
    rows, key = rows[order], key[:, order]
    starts = np.flatnonzero(np.append(True, (key[:, 1:] != key[:, :-1]).any(axis=0)))
    timed = _last_ranks(calls, rows, starts, by_duration=True)
    found = timed if len(timed) >= MIN_COLLECTIVES else _last_ranks(calls, rows, starts, by_duration=False)
    recorded_ns = int(np.ptp(calls.created_ns[rows]))
    measured = found is timed
    late = []
    for rank in sorted({int(calls.rank[row]) for row, _ in found}):
        mine = [(row, wait) for row, wait in found if calls.rank[row] == rank]
        row, longest = max(mine, key=lambda one: one[1])
        late.append(
            LateRank(
                rank=rank,
                measured=measured,
                collectives=len(mine),
                compared=_compared(calls, found if measured else [(row, 0) for row in rows[starts].tolist()], rank),
                waited_ns=sum(wait for _, wait in mine),
                recorded_ns=recorded_ns,
                longest_ns=longest,
                timeout_ns=int(calls.timeout_ns[row]),
                group=int(calls.group[row]),
                operation=calls.operations[calls.operation[row]].name,
                sequence=int(calls.sequence[row]),
                site=calls.site_of(row),
                after=calls.site_of(row - 1) if row and calls.rank[row - 1] == rank else None,
            )
        )
    return sorted(late, key=lambda one: -one.waited_ns)


def _compared(calls: Calls, collectives: list[tuple[int, int]], rank: int) -> int:
    """Collectives of groups that the rank is a member of."""
    groups = calls.group[[row for row, _ in collectives]]
    return sum(int((groups == index).sum()) for index, group in enumerate(calls.groups) if rank in group.ranks)


def _last_ranks(calls: Calls, rows: I8, starts: I8, *, by_duration: bool) -> list[tuple[int, int]]:
    """For each collective that all members have called: the row of the last rank, and how long a typical other rank
    waited for it, ns.
    """
    found = []
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(rows)], strict=True):
        mine = rows[start:end]
        members = len(calls.groups[calls.group[mine[0]]].ranks)
        if len(mine) != members or members < 2:  # also coalesced batches, with several rows for each rank
            continue
        # The last rank has the shortest duration, and the latest time of its call.
        order = -calls.duration_ns[mine] if by_duration else calls.created_ns[mine]
        if by_duration and order.max() >= 0:
            continue
        last = int(order.argmax())
        wait = int(order[last] - np.median(np.delete(order, last)))
        if by_duration or wait > CLOCK_NS:
            found.append((int(mine[last]), wait))
    return found
