"""The section of the report about the start-up of the run."""

from __future__ import annotations

from msgspec import Struct

from traceopt.reports.html.companions.section import Section
from traceopt.reports.words.companions import start_up as words
from traceopt.reports.words.tables import ShownTable, shown_table
from traceopt.result.columns import Column, Table
from traceopt.result.document import Result
from traceopt.result.quantities import seconds_of_us

PARTS = Table(
    "start-up-parts",
    "Start-up by part",
    (
        Column("label", "Part", "word"),
        Column("us", "Seconds", "seconds"),
        Column("share", "Of start-up", "share"),
        Column("lines", "Lines", "special"),
    ),
    sortable=False,
)


class StartUpView(Struct, frozen=True):
    """What the section prints."""

    summary: str
    note: str
    interval: str
    parts: ShownTable


def section(result: Result) -> Section | None:
    """None if the start-up was not measured, or takes little of the run."""
    known = result.start_up
    if known is None or not known.notable:
        return None
    stopped = "The run was stopped early, so its share of a whole run is not known."
    note = stopped if known.run_share is None else ""
    parts = shown_table(PARTS, known.parts)
    view = StartUpView(words.summary(known, result), note, seconds_of_us(known.interval_us), parts)
    return Section("start-up", "Start-up", "start_up.html.j2", view)
