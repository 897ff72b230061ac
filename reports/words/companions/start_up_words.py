"""The section of the reports about the start-up of the run."""

from __future__ import annotations

from traceopt.reports.words.companions.section import CompanionSection
from traceopt.reports.words.tables import shown_table
from traceopt.result.document import Result
from traceopt.result.sections.companions import StartUpPartRow, StartUpSection
from traceopt.result.tables.columns import Column, Table
from traceopt.result.words.quantities import in_sentence, percent, seconds_of_us

MAX_PARTS = 3
NAMED_SHARE = 0.05  # of the start-up; smaller parts are only in the table
ALMOST_ALL = 0.9  # of a part: a line with less is named with its own time
NOT_CODE = ("python", "unsampled")
CUT_SHORT = "The run was stopped early, so its share of a whole run is not known."
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


def section(result: Result) -> CompanionSection | None:
    """None if the start-up was not measured, or takes little of the run."""
    known = result.start_up
    if known is None or not known.notable:
        return None
    start = _start(known, result)
    parts = [part for part in known.parts if part.name not in NOT_CODE and part.share >= NAMED_SHARE]
    named = ", ".join(map(_part, parts[:MAX_PARTS]))
    return CompanionSection(
        anchor="start-up",
        title="Start-up",
        known=known,
        lines=[f"{start}: {named}." if named else f"{start}."],
        sentences=[f"{start}.", *([CUT_SHORT] if known.run_share is None else [])],
        tables=[shown_table(PARTS, known.parts)],
    )


def _start(known: StartUpSection, result: Result) -> str:
    """ "Start-up with the first step takes 12.3 s on rank 3, the slowest, 23% of the run"."""
    slowest = f" on rank {known.rank}, the slowest" if known.rank is not None and len(result.ranks) > 1 else ""
    share = f", {percent(known.run_share)} of the run" if known.run_share is not None else ""
    return f"Start-up with the first step takes {seconds_of_us(known.us)}{slowest}{share}"


def _part(part: StartUpPartRow) -> str:
    text = f"{in_sentence(part.label)} {seconds_of_us(part.us)}"
    if not part.lines:
        return text
    first = part.lines[0]
    most = f", {seconds_of_us(first.us)}" if first.us < ALMOST_ALL * part.us else ""
    return f"{text} ({f'{first.package}, ' if first.package else ''}{first.location}{most})"
