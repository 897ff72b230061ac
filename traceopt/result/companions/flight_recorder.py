"""What the dumps of the flight recorder say: process groups, the calls that ranks wait in, and who is late."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from traceopt.result.field_notes import note
from traceopt.result.finding import Location


class StuckCallRow(Struct, frozen=True):
    """A call that ranks wait in: the first of its process group that has not ended."""

    group: Annotated[str, note("process group")]
    operation: Annotated[str, note("collective operation, send or recv")]
    sequence: Annotated[int, note("number of the call in its group")]
    waiting: Annotated[list[int], note("ranks that have called it and wait")]
    missing: Annotated[list[int], note("ranks of the group that have not called it")]
    without_dump: Annotated[list[int], note("ranks of the group that wrote no dump, so that nothing is known of them")]
    timed_out: Annotated[bool, note("a rank has given up waiting")]
    location: Annotated[Location | None, note("where the waiting ranks call it; null: no stacks were recorded")]


class GroupRow(Struct, frozen=True):
    """A process group."""

    name: Annotated[str, note("process group")]
    ranks: Annotated[int, note("members")]
    members_known: Annotated[bool, note("false: the members are those that made calls, others may be missing")]
    first_sequence: Annotated[int | None, note("number of the oldest recorded collective; null: only sends, recvs")]
    last_sequence: Annotated[int | None, note("number of the newest recorded collective; null: only sends, recvs")]


class LateRankRow(Struct, frozen=True):
    """A rank that joined collectives last."""

    rank: Annotated[int, note("rank")]
    measured: Annotated[bool, note("true: by durations on the GPU; false: by the clocks of the hosts")]
    collectives: Annotated[int, note("collectives that the rank joined last")]
    compared: Annotated[int, note("collectives that were compared")]
    waited_us: Annotated[float, note("time that a typical other rank waited for it in all of them", "us")]
    longest_us: Annotated[float, note("longest single wait", "us")]


class FlightRecorder(Struct, frozen=True):
    """Dumps of the flight recorder."""

    dumps: Annotated[int, note("ranks with a dump")]
    calls: Annotated[int, note("recorded calls of all ranks")]
    version: Annotated[str, note("version of the format, of the lowest rank")]
    library: Annotated[str | None, note("version of the communication library; null if it is not recorded")]
    stacks: Annotated[bool, note("whether the dumps have lines of code")]
    without_dump: Annotated[list[int], note("members of process groups that wrote no dump")]
    groups: Annotated[list[GroupRow], note("process groups, largest first; at most 100")]
    stuck: Annotated[list[StuckCallRow], note("calls that ranks wait in, most waiting ranks first; at most 100")]
    late: Annotated[list[LateRankRow], note("ranks that the others waited for, longest wait first; at most 20")]
