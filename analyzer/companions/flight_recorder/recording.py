"""The dumps of all ranks together: process groups with their members, and one table of calls."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from msgspec import Struct

from traceopt.analyzer.companions.flight_recorder.calls import Calls, Group, joined
from traceopt.analyzer.companions.flight_recorder.dump import Dump, read_dump
from traceopt.analyzer.companions.flight_recorder.late_ranks import LateRank, find_late_ranks
from traceopt.analyzer.companions.flight_recorder.mismatches import Mismatch, find_mismatches
from traceopt.analyzer.companions.flight_recorder.stuck_calls import Hang, StuckCall, find_hangs, find_stuck_calls
from traceopt.analyzer.reading.sources import TraceSource
from traceopt.errors import InputError, one_line

MAX_NAMED = 5  # files in one warning


class FlightRecording(Struct, frozen=True, dict=True):
    """What the dumps of a run say. `dumps` are in the order of their ranks."""

    dumps: list[Dump]
    calls: Calls

    @property
    def groups(self) -> list[Group]:
        return self.calls.groups

    @cached_property
    def without_dump(self) -> list[int]:
        """Members of the groups that wrote no dump."""
        members = {rank for group in self.groups for rank in group.ranks}
        return sorted(members - {dump.rank for dump in self.dumps})

    @cached_property
    def stuck(self) -> list[StuckCall]:
        """Calls that some ranks wait in, the first of each group."""
        return find_stuck_calls(self.calls)

    @cached_property
    def hangs(self) -> list[Hang]:
        """Stuck calls by the ranks that all of them wait for."""
        return find_hangs(self.calls, self.stuck)

    @cached_property
    def mismatches(self) -> list[Mismatch]:
        """The first collective of each group that its ranks call differently."""
        return find_mismatches(self.calls)

    @cached_property
    def late(self) -> list[LateRank]:
        """Ranks that others waited for, longest wait first."""
        return find_late_ranks(self.calls)


def read_flight_recorder(files: Sequence[TraceSource], warnings: list[str]) -> FlightRecording:
    """Reads the dumps of a run. If a rank has several, it keeps the latest one, or of equally late ones the one with
    lines.

    A dump that cannot be read is a warning, unless no other can. Raises InputError for that.
    """
    of_rank: dict[int, Dump] = {}
    errors: list[str] = []
    twice: list[str] = []
    for source in files:
        try:
            dump = read_dump(source)
        except InputError as error:
            errors.append(one_line(str(error)))
            continue
        other = of_rank.get(dump.rank)
        if other is not None:
            twice.append(min(dump, other, key=_worth).label)
        if other is None or _worth(dump) > _worth(other):
            of_rank[dump.rank] = dump
    if not of_rank:
        raise InputError(errors[0])
    warnings += _few(errors)
    if twice:
        warnings.append(f"{len(twice):,} ranks have several dumps; left out: {', '.join(sorted(twice)[:MAX_NAMED])}")
    dumps = [of_rank[rank] for rank in sorted(of_rank)]
    return FlightRecording(dumps, joined(dumps))


def _worth(dump: Dump) -> tuple[int, int]:
    """What makes one of several dumps of a rank the better one: a later last call, then lines of code."""
    return int(dump.created_ns.max(initial=0)), len(dump.sites)


def _few(errors: Sequence[str]) -> list[str]:
    if len(errors) <= MAX_NAMED:
        return list(errors)
    return [*errors[:MAX_NAMED], f"{len(errors) - MAX_NAMED:,} more dumps cannot be read"]
