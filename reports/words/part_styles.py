"""The looks of the parts of the step and of spans: color, pattern, explanation.

Busy parts are plain and idle parts have a pattern, so that color is never the only difference.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from msgspec.structs import replace

from traceopt.analyzer.vocabulary.causes.cause import Cause, Look
from traceopt.analyzer.vocabulary.causes.span_categories import SPAN_CATEGORIES
from traceopt.analyzer.vocabulary.causes.table import CAUSE_OF_KEY, COMMUNICATION, COMPUTE, COPIES
from traceopt.result.sections.work_rows import BreakdownPart

PLAIN = ""
_UNKNOWN = Look("other", "dots")
_LOOK_OF_SPAN = {row.key: (row.color, row.label) for row in SPAN_CATEGORIES}
_OTHER_SPAN = ("other", "Other")
_IDLE = "GPU idle"
_PART_OF_WORK = {"collective": COMMUNICATION, "memcpy": COPIES, "memset": COPIES}


def part_of_work(kind: str) -> Cause:
    """The part of the step to which a kind of GPU work belongs."""
    return _PART_OF_WORK.get(kind, COMPUTE)


def part_style(name: str, busy: bool) -> Look:
    """The look of a part. A part that this version does not know is gray, and dotted if idle."""
    look = CAUSE_OF_KEY[name].look if name in CAUSE_OF_KEY else _UNKNOWN
    return replace(look, pattern=PLAIN if busy else look.pattern or _UNKNOWN.pattern)


def span_color(category: str) -> str:
    return span_look(category)[0]


def is_idle(category: str) -> bool:
    """Whether a category is the cause of an idle gap: the gap itself names it."""
    return category in CAUSE_OF_KEY and category not in _LOOK_OF_SPAN


def span_look(category: str) -> tuple[str, str]:
    """Color and name of a category. Idle gaps have the color of their cause, as in the parts of the step."""
    if is_idle(category):
        return CAUSE_OF_KEY[category].look.color, _IDLE
    return _LOOK_OF_SPAN.get(category, _OTHER_SPAN)


def span_words(categories: Set[str]) -> list[tuple[str, str]]:
    """Color and name of each category present, in the order of the table."""
    known = [look for category, look in _LOOK_OF_SPAN.items() if category in categories]
    return known + ([_OTHER_SPAN] if categories - _LOOK_OF_SPAN.keys() else [])


def small_parts_together(parts: Sequence[BreakdownPart], small_share: float) -> list[BreakdownPart]:
    """The idle parts, then the busy parts, each side with the largest first. Two or more of a side with less than
    `small_share` of the step become one.
    """
    shown: list[BreakdownPart] = []
    for busy in (False, True):
        side = [part for part in parts if part.busy is busy]
        small = [part for part in side if part.share < small_share]
        if len(small) < 2:
            shown += side
            continue
        us, share = sum(part.us_per_step for part in small), sum(part.share for part in small)
        larger = [part for part in side if part.share >= small_share]
        label = f"{len(small)} {'smaller parts' if larger else 'parts'}"
        shown += [*larger, BreakdownPart("smaller", label, busy, us, share, None)]
    return shown
