"""The section of the report about the start-up of the run."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from traceopt.reports.html.companions.section import Section
from traceopt.reports.words.companions import start_up as words
from traceopt.result.document import Result
from traceopt.result.quantities import seconds_number, seconds_of_us


class StartUpView(Struct, frozen=True):
    """`rows`: the parts with their seconds and their lines, as ("train.py:3", "torch", "1.2 s")."""

    summary: str
    note: str
    interval: str
    rows: list[dict[str, Any]]


def section(result: Result) -> Section | None:
    """None if the start-up was not measured, or takes little of the run."""
    known = result.start_up
    if known is None or not known.notable:
        return None
    rows = [
        {
            "label": part.label,
            "seconds": seconds_number(part.us),
            "share": part.share,
            "lines": [(line.location, line.package, seconds_of_us(line.us)) for line in part.lines],
        }
        for part in known.parts
    ]
    note = (
        "" if known.run_share is not None else " The run was stopped early, so its share of a whole run is not known."
    )
    return Section(
        "start-up",
        "Start-up",
        "start_up.html.j2",
        StartUpView(words.summary(known, result), note, seconds_of_us(known.interval_us), rows),
    )
