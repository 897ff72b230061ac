"""The words for dumps of the flight recorder."""

from __future__ import annotations

from traceopt.result.companions.flight_recorder import FlightRecorder, StuckCallRow
from traceopt.result.companions.rank_lists import are, ranks_text
from traceopt.result.document import Result
from traceopt.result.quantities import counted

MAX_LINES = 3  # stuck calls in the terminal


def summary(known: FlightRecorder) -> str:
    """ "8 dumps of the flight recorder with 1,600 calls.", and what they lack."""
    library = f", library version {known.library}" if known.library else ""
    text = f"{counted(known.dumps, 'dump')} of the flight recorder with {counted(known.calls, 'call')}{library}."
    if known.without_dump:
        text += f" No dump: {ranks_text(known.without_dump)}."
    if not known.stacks:
        text += " The dumps have no stacks, so lines are not known."
    return text


def state(row: StuckCallRow) -> str:
    """Why a call has not ended."""
    if row.timed_out:
        return "timed out"
    return "waits" if row.missing or row.without_dump else "all joined, not ended"


def ranks(numbers: list[int]) -> str:
    """ "ranks 0-2 and 7"; a dash for none."""
    return ranks_text(numbers) if numbers else "–"


def awaited(row: StuckCallRow) -> str:
    """The ranks that the others wait for."""
    if row.missing or not row.without_dump:
        return ranks(row.missing)
    return f"{ranks_text(row.without_dump)} (no dump)"


def lines(result: Result) -> list[str]:
    """For the terminal and Markdown: the dumps, and the calls that most ranks wait in."""
    known = result.flight_recorder
    if known is None:
        return []
    stuck = [row for row in known.stuck if row.missing or row.without_dump]
    return [summary(known), *(_line(row) for row in stuck[:MAX_LINES])]


def _line(row: StuckCallRow) -> str:
    place = f" ({row.location})" if row.location is not None else ""
    return (
        f"{ranks_text(row.waiting).capitalize()} {are(row.waiting)} waiting in {row.operation} number "
        f"{row.sequence:,} of {row.group}{place} for {awaited(row)}."
    )
