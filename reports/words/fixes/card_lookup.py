"""Which fix concerns a line, a name or a stall of the timeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from traceopt.analyzer.vocabulary.causes.table import CAUSE_OF_KEY, HOST_SYNC
from traceopt.reports.words.fixes.fix_cards import Card
from traceopt.result.finding import Finding, Location
from traceopt.result.sections.timeline_rows import Stall
from traceopt.result.sections.work_rows import BreakdownPart

_AT_ITS_LINE = (HOST_SYNC.key,)  # causes with a finding per line


def rules_of_cause(cause: str) -> tuple[str, ...]:
    """Codes of the rules that measure a part of the step; empty for those in which the device computes."""
    return CAUSE_OF_KEY[cause].rules if cause in CAUSE_OF_KEY else ()


def cards_of_part(cards: Sequence[Card], part: BreakdownPart) -> list[Card]:
    """The numbered fixes whose rule measures this part of the step."""
    rules = rules_of_cause(part.name)
    return [card for card in cards if card.number is not None and card.finding.code in rules]


def cards_of_place(cards: Iterable[Card], place: Location) -> list[int]:
    """The cards that name this line, as places in `cards`."""
    return [index for index, card in enumerate(cards) if any(_meet(place, one) for one in _places(card.finding))]


def cards_of_name(cards: Iterable[Card], *names: str) -> list[int]:
    """The cards whose evidence is work of this name, wherever it was called from."""
    return [
        index
        for index, card in enumerate(cards)
        if any(row.location is None and row.what in names for row in card.finding.evidence)
    ]


def card_of_stall(cards: Iterable[Card], stall: Stall) -> int | None:
    return card_of_cause(cards, stall.cause, stall.location)


def card_of_cause(cards: Iterable[Card], cause: str, place: Location | None = None) -> int | None:
    """The first card of a rule that measures the cause of idle time, and at its line if there is one per line."""
    rules = rules_of_cause(cause)
    for index, card in enumerate(cards):
        if card.finding.code in rules and (cause not in _AT_ITS_LINE or _at_line(card.finding, place)):
            return index
    return None


def _at_line(finding: Finding, place: Location | None) -> bool:
    known = _places(finding)
    return place is None or not known or any(_meet(place, one) for one in known)


def _places(finding: Finding) -> list[Location]:
    return [*finding.locations, *(row.location for row in finding.evidence if row.location is not None)]


def _meet(one: Location, other: Location) -> bool:
    """Whether two places share a line."""
    if one.file != other.file or one.line is None or other.line is None:
        return False
    return one.line <= (other.last_line or other.line) and other.line <= (one.last_line or one.line)
