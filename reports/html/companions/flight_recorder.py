"""The section of the report about dumps of the flight recorder."""

from __future__ import annotations

from msgspec import Struct

from traceopt.reports.html.companions.section import Section
from traceopt.reports.words.companions import flight_recorder as words
from traceopt.reports.words.tables import Derived, ShownTable, shown_table
from traceopt.result.columns import Column, Table
from traceopt.result.document import Result

STUCK = Table(
    "stuck",
    "Calls that have not ended",
    (
        Column("call", "Call", "name"),
        Column("group", "Process group", "word"),
        Column("state", "State", "word"),
        Column("waiting", "Waiting", "word"),
        Column("awaited", "Waiting for", "word"),
        Column("location", "Called from", "place"),
    ),
    sortable=False,
)
GROUPS = Table(
    "groups",
    "Process groups",
    (
        Column("name", "Group", "word"),
        Column("members", "Ranks", "number"),
        Column("first_sequence", "Oldest collective", "count"),
        Column("last_sequence", "Newest collective", "count"),
    ),
    sortable=False,
)
LATE = Table(
    "late",
    "Ranks that come last",
    (
        Column("rank", "Rank", "word"),
        Column("collectives", "Last in", "count"),
        Column("compared", "Compared", "count"),
        Column("waited_us", "Others waited, ms", "ms"),
        Column("longest_us", "Longest wait, ms", "ms"),
    ),
    sortable=False,
)
_STUCK: Derived = {
    "call": lambda row: f"{row.operation} {row.sequence:,}",
    "state": words.state,
    "waiting": lambda row: words.ranks(row.waiting),
    "awaited": words.awaited,
}
_GROUP: Derived = {"members": lambda row: f"{'' if row.members_known else 'at least '}{row.ranks:,}"}


class FlightRecorderView(Struct, frozen=True):
    """What the section prints."""

    summary: str
    stuck: ShownTable
    groups: ShownTable
    late: ShownTable


def section(result: Result) -> Section | None:
    """None without dumps."""
    known = result.flight_recorder
    if known is None:
        return None
    view = FlightRecorderView(
        words.summary(known),
        shown_table(STUCK, known.stuck, derived=_STUCK),
        shown_table(GROUPS, known.groups, derived=_GROUP),
        shown_table(LATE, known.late),
    )
    return Section("flight-recorder", "Collectives", "flight_recorder.html.j2", view)
