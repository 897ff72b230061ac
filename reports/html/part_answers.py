"""What the first bar says of each of its parts: where it stands, what the part is, where its time goes, its fixes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from msgspec import Struct

from traceopt.analyzer.vocabulary.causes.cause import Look
from traceopt.analyzer.vocabulary.causes.table import CAUSE_OF_KEY, COMMUNICATION, COMPUTE, COPIES
from traceopt.reports.words.fixes.card_lookup import cards_of_part
from traceopt.reports.words.fixes.fix_cards import Card
from traceopt.reports.words.part_styles import part_of_work, part_style
from traceopt.result.document import Result
from traceopt.result.finding import Location
from traceopt.result.sections.work_rows import BreakdownPart

LEAST_PART_US = 1  # shorter parts of the step have no row, so the bar does not draw them
MOST_CAUSES = 3
MOST_FIXES = 3
NAME_ROWS = 3  # below the bar, for the names that do not fit into their parts
LEAST_NAMED_SHARE = 0.01  # of the bar: a smaller part answers, but has no name below the bar
BAR_PIXELS = 900  # the bar on a wide screen
LETTER_PIXELS = 7.5
TIME_PIXELS = 80  # room of the time beside the name
BELOW_PIXELS = 75  # the same below the bar, where letters are thinner


class PartCause(Struct, frozen=True):
    """A row of what a part is made of. `us` is per step."""

    what: str
    us: float
    location: Location | None = None


class NameBelow(Struct, frozen=True):
    """The name of a part that is too narrow for it, in one of the rows below the bar. `left` is per cent of the bar;
    None: the name ends with the bar.
    """

    left: float | None
    row: int


class PartAnswer(Struct, frozen=True):
    """`after_us`: what the fixes of the plan leave of it, None if there is no plan or its parts are not known."""

    part: BreakdownPart
    look: Look
    meaning: str  # with code in backticks
    causes: list[PartCause]
    cards: list[Card]
    after_us: float | None
    below: NameBelow | None


def part_answers(document: Result, cards: list[Card], gpu_measured: bool) -> list[PartAnswer]:
    """The parts as the bar has them, from left to right."""
    drawn = sorted(
        (part for part in document.breakdown if part.us_per_step >= LEAST_PART_US), key=lambda part: part.busy
    )
    after = {} if document.combined is None else {p.name: p.us_per_step for p in document.combined.breakdown_after}
    answers = []
    for part, below in zip(drawn, _names_below(drawn), strict=True):
        look = part_style(part.name, part.busy)
        cause = CAUSE_OF_KEY.get(part.name)
        mine = cards_of_part(cards, part)[:MOST_FIXES]
        answers.append(
            PartAnswer(
                part,
                look,
                meaning=cause.meaning if cause is not None and gpu_measured else look.detail,
                causes=_causes(document, part, mine),
                cards=mine,
                after_us=after.get(part.name, 0.0) if after else None,
                below=below,
            )
        )
    return answers


def _causes(document: Result, part: BreakdownPart, cards: Sequence[Card]) -> list[PartCause]:
    """The longest work of a busy part; of an idle one, the evidence of its first fix, unless that is about a longer
    part or about several.
    """
    if part.name == COMPUTE.key:
        kernels = [row for row in document.kernels if part_of_work(row.kind) is COMPUTE]
        rows = [PartCause(row.label or row.name, row.us_per_step, row.location) for row in kernels]
    elif part.name == COMMUNICATION.key:
        collectives = document.communication.collectives
        rows = [PartCause(row.name, row.exposed_us_per_step, row.location) for row in collectives]
    elif part.name == COPIES.key:
        rows = [PartCause(row.kind, row.exposed_us_per_step) for row in document.copies]
    else:
        evidence = cards[0].finding.evidence if cards and part is _longest(document, cards[0]) else []
        rows = [
            PartCause(row.what, row.us_per_step, row.location)
            for row in evidence
            if row.us_per_step is not None and not row.inside
        ]
        most_us = max(part.us_per_step, part.raw_us_per_step or 0.0)
        rows = [] if any(row.us > most_us for row in rows) else rows
    return sorted(rows, key=lambda row: -row.us)[:MOST_CAUSES]


def _longest(document: Result, card: Card) -> BreakdownPart:
    """The longest of the parts that the rule of a fix measures."""
    return max((part for part in document.breakdown if cards_of_part([card], part)), key=lambda part: part.us_per_step)


def has_room(label: str, pixels: float, beside: float = TIME_PIXELS) -> bool:
    """Whether the name of a part, and what is beside it, fit into its place in a bar."""
    return pixels > len(label) * LETTER_PIXELS + beside


def _names_below(parts: Sequence[BreakdownPart]) -> list[NameBelow | None]:
    """A place for each name that does not fit into its part, in the first row where it meets no other. The longest
    parts choose first.
    """
    ends = list(accumulate(part.us_per_step for part in parts))
    pixels = BAR_PIXELS / ends[-1] if ends else 0.0
    rows: list[list[tuple[float, float]]] = [[] for _ in range(NAME_ROWS)]  # from where to where there are names
    places: list[NameBelow | None] = [None] * len(parts)
    for index, part in sorted(enumerate(parts), key=lambda pair: -pair[1].us_per_step):
        share, width = part.us_per_step / ends[-1], len(part.label) * LETTER_PIXELS + BELOW_PIXELS
        begin = (ends[index] - part.us_per_step) * pixels
        left = min(begin, BAR_PIXELS - width)
        free = (row for row, names in enumerate(rows) if all(a >= left + width or b <= left for a, b in names))
        if has_room(part.label, share * BAR_PIXELS) or share < LEAST_NAMED_SHARE or (row := next(free, None)) is None:
            continue
        rows[row].append((left, left + width))
        places[index] = NameBelow(round(left / BAR_PIXELS * 100, 2) if left == begin else None, row)
    return places
