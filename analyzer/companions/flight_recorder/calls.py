"""All ranks' calls in one table, with process groups, operations and lines that all of them share."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

import numpy as np
from msgspec import Struct

from traceopt.analyzer.companions.flight_recorder.dump import Dump, Entries, GroupName
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.result.finding import Location

T = TypeVar("T", bound=Hashable)


class Group(Struct, frozen=True):
    """A process group. `ranks`: its members in order, or those that used it where `known` is False."""

    name: str
    description: str
    ranks: tuple[int, ...]
    known: bool

    @property
    def label(self) -> str:
        """The name that the program gave it, else its number."""
        if self.description == "default_pg":
            return "the default group"
        return f"group {self.description if self.description not in ('', 'undefined') else self.name}"


class Calls(Entries, frozen=True):
    """The entries of all dumps, in the order of the ranks and of time."""

    groups: list[Group]
    wrapped: dict[int, bool]  # for each rank with a dump: it has lost older calls
    rank: I8

    def site_of(self, row: int) -> Location | None:
        """The user's line of a call; None if the dump has no stacks."""
        return self.sites[self.site[row]] if row >= 0 and self.site[row] >= 0 else None

    def usual_site(self, rows: I8) -> Location | None:
        """The line that most of these calls come from."""
        known = self.site[rows][self.site[rows] >= 0]
        return self.sites[int(np.bincount(known).argmax())] if len(known) else None

    def last_of(self, rank: int) -> int:
        """The row of a rank's last call; -1 without any."""
        end = int(np.searchsorted(self.rank, rank, side="right"))
        return end - 1 if end and self.rank[end - 1] == rank else -1


def joined(dumps: Sequence[Dump]) -> Calls:
    """The calls of all dumps. The operations of one coalesced batch share the state of the call that ends it."""
    groups, of_group = _groups(dumps)
    operations, of_operation = _shared([dump.operations for dump in dumps])
    sites, of_site = _shared([dump.sites for dump in dumps])
    lengths = [len(dump) for dump in dumps]
    calls = Calls(
        groups=groups,
        operations=operations,
        sites=sites,
        wrapped={dump.rank: dump.wrapped for dump in dumps},
        rank=np.repeat(np.array([dump.rank for dump in dumps], np.int64), lengths),
        group=_together([codes[dump.group] for dump, codes in zip(dumps, of_group, strict=True)]),
        operation=_together([codes[dump.operation] for dump, codes in zip(dumps, of_operation, strict=True)]),
        site=_together(
            [np.append(codes, -1)[dump.site] for dump, codes in zip(dumps, of_site, strict=True)]  # -1 stays -1
        ),
        sequence=_together([dump.sequence for dump in dumps]),
        is_p2p=_together([dump.is_p2p for dump in dumps]).astype(bool),
        created_ns=_together([dump.created_ns for dump in dumps]),
        duration_ns=_together([dump.duration_ns for dump in dumps]),
        timeout_ns=_together([dump.timeout_ns for dump in dumps]),
        done=_together([dump.done for dump in dumps]).astype(bool),
        timed_out=_together([dump.timed_out for dump in dumps]).astype(bool),
    )
    _share_state(calls)
    return calls


def _together(columns: Sequence[I8 | Mask]) -> I8:
    return np.concatenate(columns) if columns else np.empty(0, np.int64)


def _shared(lists: Sequence[Sequence[T]]) -> tuple[list[T], list[I8]]:
    """Values that several ranks have, each once, and for each rank the index of each of its own values."""
    index: dict[T, int] = {}
    codes = [np.array([index.setdefault(value, len(index)) for value in values], np.int64) for values in lists]
    return list(index), codes


def _groups(dumps: Sequence[Dump]) -> tuple[list[Group], list[I8]]:
    """Groups by name and members, because several groups of a split have the same name."""
    members: dict[tuple[str, str], set[tuple[int, ...]]] = {}
    users: dict[tuple[str, str], list[int]] = {}
    for dump in dumps:
        for group in dump.groups:
            key = (group.name, group.description)
            users.setdefault(key, []).append(dump.rank)
            if group.ranks is not None:
                members.setdefault(key, set()).add(group.ranks)

    def of(group: GroupName, rank: int) -> Group:
        key = (group.name, group.description)
        possible = [ranks for ranks in members.get(key, ()) if rank in ranks]
        if group.ranks is not None:
            return Group(*key, group.ranks, known=True)
        if len(possible) == 1:
            return Group(*key, possible[0], known=True)
        if group.description == "default_pg":
            return Group(*key, tuple(dump.rank for dump in dumps), known=False)
        return Group(*key, tuple(users[key]), known=False)

    return _shared([[of(group, dump.rank) for group in dump.groups] for dump in dumps])


def _share_state(calls: Calls) -> None:
    """Only the last call of a coalesced batch has GPU events; the others keep their first state forever."""
    if not len(calls):
        return
    batch = np.stack([calls.rank, calls.group, calls.is_p2p.astype(np.int64), calls.sequence])
    order = np.lexsort(batch[::-1])
    starts = np.append(True, (batch[:, order][:, 1:] != batch[:, order][:, :-1]).any(axis=0))
    last = np.append(np.flatnonzero(starts)[1:], len(order)) - 1
    source = order[last[np.cumsum(starts) - 1]]
    for column in (calls.done, calls.timed_out):
        column[order] = column[source]
