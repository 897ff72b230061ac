"""The section of the reports about dumps of the flight recorder."""

from __future__ import annotations

from traceopt.reports.words.companions.section import CompanionSection
from traceopt.reports.words.tables import Derived, shown_table
from traceopt.result.document import Result
from traceopt.result.sections.companions import FlightRecorder, StuckCallRow
from traceopt.result.tables.columns import Column, Table
from traceopt.result.words.quantities import counted
from traceopt.result.words.rank_lists import are, ranks_text

MAX_LINES = 3  # stuck calls in the terminal
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


def section(result: Result) -> CompanionSection | None:
    """The dumps, the calls that ranks wait in, process groups and late ranks; None without dumps."""
    known = result.flight_recorder
    if known is None:
        return None
    summary = _summary(known)
    waiting = [row for row in known.stuck if row.missing or row.without_dump]
    stuck: Derived = {
        "call": lambda row: f"{row.operation} {row.sequence:,}",
        "state": _state,
        "waiting": lambda row: _ranks(row.waiting),
        "awaited": _awaited,
    }
    group: Derived = {"members": lambda row: f"{'' if row.members_known else 'at least '}{row.ranks:,}"}
    return CompanionSection(
        anchor="flight-recorder",
        title="Collectives",
        known=known,
        lines=[summary, *map(_waiting, waiting[:MAX_LINES])],
        sentences=[summary],
        tables=[
            shown_table(STUCK, known.stuck, derived=stuck),
            shown_table(GROUPS, known.groups, derived=group),
            shown_table(LATE, known.late),
        ],
    )


def _summary(known: FlightRecorder) -> str:
    """ "8 dumps of the flight recorder with 1,600 calls.", and what they lack."""
    library = f", library version {known.library}" if known.library else ""
    text = f"{counted(known.dumps, 'dump')} of the flight recorder with {counted(known.calls, 'call')}{library}."
    if known.without_dump:
        text += f" No dump: {ranks_text(known.without_dump)}."
    if not known.stacks:
        text += " The dumps have no stacks, so lines are not known."
    return text


def _state(row: StuckCallRow) -> str:
    """Why a call has not ended."""
    if row.timed_out:
        return "timed out"
    return "waits" if row.missing or row.without_dump else "all joined, not ended"


def _ranks(numbers: list[int]) -> str:
    """ "ranks 0-2 and 7"; a dash for none."""
    return ranks_text(numbers) if numbers else "–"


def _awaited(row: StuckCallRow) -> str:
    """The ranks that the others wait for."""
    if row.missing or not row.without_dump:
        return _ranks(row.missing)
    return f"{ranks_text(row.without_dump)} (no dump)"


def _waiting(row: StuckCallRow) -> str:
    place = f" ({row.location})" if row.location is not None else ""
    return (
        f"{ranks_text(row.waiting).capitalize()} {are(row.waiting)} waiting in {row.operation} number "
        f"{row.sequence:,} of {row.group}{place} for {_awaited(row)}."
    )
