"""The words for the start-up of the run."""

from __future__ import annotations

from traceopt.result.companions.start_up import StartUpPartRow, StartUpSection
from traceopt.result.document import Result
from traceopt.result.quantities import in_sentence, percent, seconds_of_us

MAX_PARTS = 3
NAMED_SHARE = 0.05  # of the start-up; smaller parts are only in the table
ALMOST_ALL = 0.9  # of a part: a line with less is named with its own time
NOT_CODE = ("python", "unsampled")


def lines(result: Result) -> list[str]:
    """For the terminal and Markdown: one sentence if the start-up is notable."""
    known = result.start_up
    if known is None or not known.notable:
        return []
    parts = [part for part in known.parts if part.name not in NOT_CODE and part.share >= NAMED_SHARE]
    named = ", ".join(map(_part, parts[:MAX_PARTS]))
    return [f"{_start(known, result)}: {named}." if named else summary(known, result)]


def summary(known: StartUpSection, result: Result) -> str:
    """ "Start-up with the first step takes 12.3 s on rank 3, the slowest, 23% of the run." """
    return f"{_start(known, result)}."


def _start(known: StartUpSection, result: Result) -> str:
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
