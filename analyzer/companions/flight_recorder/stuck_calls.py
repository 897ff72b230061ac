"""Calls that ranks wait in, and the ranks that they wait for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct

from traceopt.analyzer.companions.flight_recorder.calls import Calls
from traceopt.analyzer.tables.schema import I8
from traceopt.result.finding import Location

_PEER = re.compile(r"(send|recv) (\d+)(?:->|<-)(\d+)")


class StuckCall(Struct, frozen=True):
    """The first call of a group that has not ended. `missing`: members that wrote a dump and have not called it;
    `without_dump`: members that wrote none, so that nothing is known of them.
    """

    group: int
    operation: str
    sequence: int
    site: Location | None  # where the waiting ranks call it
    waiting: tuple[int, ...]
    missing: tuple[int, ...]
    without_dump: tuple[int, ...]
    timed_out: bool

    @property
    def awaited(self) -> tuple[int, ...]:
        """The ranks that others wait for: those that are known to be missing, else those that wrote no dump."""
        return self.missing or self.without_dump


class LastCall(Struct, frozen=True):
    """The last call of a rank that others wait for."""

    rank: int
    operation: str | None  # None: it has called nothing
    site: Location | None


class Hang(Struct, frozen=True):
    """Stuck calls that have the same cause. `culprits`: the ranks that all of them wait for and that wait for no one,
    with their last calls; empty if the ranks wait for each other in a circle.
    """

    culprits: list[LastCall]
    calls: list[StuckCall]  # those that only the culprits are missing from; in a circle, all of them
    waiting: tuple[int, ...]  # all ranks that wait, directly or for others that do

    @property
    def timed_out(self) -> bool:
        return any(call.timed_out for call in self.calls)


def find_stuck_calls(calls: Calls) -> list[StuckCall]:
    """The first pending collective of each group, and pending sends and receives whose peer has not called theirs."""
    pending = np.flatnonzero(~calls.done)
    collectives = pending[~calls.is_p2p[pending]]
    found = (_stuck_collective(calls, int(group), collectives) for group in np.unique(calls.group[collectives]))
    stuck = [call for call in found if call is not None]
    return [*stuck, *_stuck_peers(calls, pending[calls.is_p2p[pending]])]


def _stuck_collective(calls: Calls, group: int, pending: I8) -> StuckCall | None:
    """The first pending collective that has not ended anywhere: of one that all ranks have joined and some have ended,
    the others only have not noticed the end yet.
    """
    mine = pending[calls.group[pending] == group]
    last = _last_sequence(calls, group)
    members = calls.groups[group].ranks
    ended = calls.sequence[(calls.group == group) & ~calls.is_p2p & calls.done]
    joined_by_all = min((last.get(rank, -1) for rank in members), default=-1)
    left = calls.sequence[mine]
    left = left[(left > joined_by_all) | ~np.isin(left, ended)]
    if not len(left):
        return None
    sequence = int(left.min())
    rows = mine[calls.sequence[mine] == sequence]
    return StuckCall(
        group=group,
        operation=calls.operations[calls.operation[rows[0]]].name,
        sequence=sequence,
        site=calls.usual_site(rows),
        waiting=tuple(np.unique(calls.rank[rows]).tolist()),
        missing=tuple(
            rank
            for rank in members
            # A rank without a call in this group has never been there, unless the buffer has lost its older calls.
            if rank in calls.wrapped and last.get(rank, sequence if calls.wrapped[rank] else -1) < sequence
        ),
        without_dump=tuple(rank for rank in members if rank not in calls.wrapped),
        timed_out=bool(calls.timed_out[rows].any()),
    )


def _last_sequence(calls: Calls, group: int) -> dict[int, int]:
    """For each rank, the number of its last collective in a group."""
    rows = np.flatnonzero((calls.group == group) & ~calls.is_p2p)
    ranks, index = np.unique(calls.rank[rows], return_inverse=True)
    last = np.full(len(ranks), -1, np.int64)
    np.maximum.at(last, index, calls.sequence[rows])
    return dict(zip(ranks.tolist(), last.tolist(), strict=True))


def _stuck_peers(calls: Calls, pending: I8) -> list[StuckCall]:
    """Pending sends without a pending receive at the other rank, and the reverse; the first of each pair of ranks."""
    first: dict[tuple[int, str, int, int], int] = {}
    for row in pending.tolist():
        match = _PEER.match(calls.operations[calls.operation[row]].name)
        members = calls.groups[calls.group[row]].ranks
        if match and calls.groups[calls.group[row]].known and int(match[3]) < len(members):
            first.setdefault((int(calls.group[row]), match[1], int(calls.rank[row]), members[int(match[3])]), row)
    other = {"send": "recv", "recv": "send"}
    return [
        StuckCall(
            group=group,
            operation=kind,
            sequence=int(calls.sequence[row]),
            site=calls.site_of(row),
            waiting=(rank,),
            missing=(peer,) if peer in calls.wrapped else (),
            without_dump=() if peer in calls.wrapped else (peer,),
            timed_out=bool(calls.timed_out[row]),
        )
        for (group, kind, rank, peer), row in first.items()
        if (group, other[kind], peer, rank) not in first
    ]


def find_hangs(calls: Calls, stuck: Sequence[StuckCall]) -> list[Hang]:
    """Follows each stuck call to the ranks that wait for no one. Most waiting ranks first."""
    stuck = [call for call in stuck if call.awaited]
    waits_in: dict[int, list[int]] = {}
    for index, call in enumerate(stuck):
        for rank in call.waiting:
            waits_in.setdefault(rank, []).append(index)
    of_cause: dict[frozenset[int], list[int]] = {}
    for index in range(len(stuck)):
        reached = _reached(stuck, waits_in, index)
        awaited = {rank for one in reached for rank in stuck[one].awaited}
        of_cause.setdefault(frozenset(awaited - waits_in.keys()), []).append(index)
    hangs = []
    for culprits, indices in of_cause.items():
        together = [stuck[index] for index in indices]
        # Where only the culprits are missing, no other rank can be the reason.
        direct = [call for call in together if culprits and culprits.issuperset(call.awaited)]
        direct = direct or [call for call in together if culprits.intersection(call.awaited)] or together
        hangs.append(
            Hang(
                culprits=[_last_call(calls, rank) for rank in sorted(culprits)],
                calls=sorted(direct, key=lambda call: (-len(call.waiting), call.group)),
                waiting=tuple(sorted({rank for call in together for rank in call.waiting})),
            )
        )
    return sorted(hangs, key=lambda hang: -len(hang.waiting))


def _reached(stuck: Sequence[StuckCall], waits_in: dict[int, list[int]], start: int) -> Iterable[int]:
    """The stuck calls that this one waits for, directly or through others; with itself."""
    seen = {start}
    open_ = [start]
    while open_:
        for rank in stuck[open_.pop()].awaited:
            new = [index for index in waits_in.get(rank, ()) if index not in seen]
            seen.update(new)
            open_ += new
    return seen


def _last_call(calls: Calls, rank: int) -> LastCall:
    row = calls.last_of(rank)
    if row < 0:
        return LastCall(rank, None, None)
    return LastCall(rank, calls.operations[calls.operation[row]].name, calls.site_of(row))
