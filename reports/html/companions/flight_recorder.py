"""The section of the report about dumps of the flight recorder."""

from __future__ import annotations

from msgspec import Struct

from traceopt.reports.html.companions.section import Section
from traceopt.reports.words.companions import flight_recorder as words
from traceopt.result.companions.flight_recorder import GroupRow, LateRankRow, StuckCallRow
from traceopt.result.document import Result
from traceopt.result.finding import Location


class StuckView(Struct, frozen=True):
    """A row of the table of calls that ranks wait in."""

    call: str
    group: str
    state: str
    waiting: str
    awaited: str
    location: Location | None


class FlightRecorderView(Struct, frozen=True):
    """What the section prints."""

    summary: str
    stuck: list[StuckView]
    groups: list[GroupRow]
    late: list[LateRankRow]
    stacks: bool


def section(result: Result) -> Section | None:
    """None without dumps."""
    known = result.flight_recorder
    if known is None:
        return None
    view = FlightRecorderView(
        words.summary(known), [_stuck(row) for row in known.stuck], known.groups, known.late, known.stacks
    )
    return Section("flight-recorder", "Collectives", "flight_recorder.html.j2", view)


def _stuck(row: StuckCallRow) -> StuckView:
    return StuckView(
        call=f"{row.operation} {row.sequence:,}",
        group=row.group,
        state=words.state(row),
        waiting=words.ranks(row.waiting),
        awaited=words.awaited(row),
        location=row.location,
    )
