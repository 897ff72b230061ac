"""Where the numbers of a fix come from: the part of the step that it treats, and the table rows of its evidence."""

from __future__ import annotations

import re
from collections.abc import Iterator

from traceopt.reports.html.charts.timeline_svg import draw_memory
from traceopt.reports.words.fixes.card_lookup import rules_of_cause
from traceopt.reports.words.fixes.fix_cards import Card
from traceopt.result.document import Result
from traceopt.result.finding import Evidence
from traceopt.result.quantities import NO_BREAK_SPACE, ms_of_us
from traceopt.result.rows import BreakdownPart, Gemm

_WAITING = "Waiting for "  # before the operator that the GPU waited for
_MEMORY = ("Peak allocated", "At the peak:")
# A time in a sentence, and the words after it if it is the step time: "each 177.6 ms step", "the 545.7 ms recording".
_TIME = re.compile(r"(?<![\w.,])(?P<time>\d[\d,]*(?:\.\d+)?\sm?s)\b(?P<step>\s(?:step|recording)\b)?")


class EvidenceLinks:
    """Looks up names of evidence among the shown rows of the tables. A row's anchor is its table and its number."""

    def __init__(self, document: Result, shown: dict[str, int]) -> None:
        """`document` is cleaned for display; `shown` is how many rows each table has at most."""
        tables = {
            "gemms": [gemm_name(gemm) for gemm in document.gemms],
            "kernels": [kernel.label or kernel.name for kernel in document.kernels],
            "collectives": [row.name for row in document.communication.collectives],
            "copies": [row.kind for row in document.copies],
            "ops": [op.name for op in document.ops],
        }
        self._anchors: dict[str, str] = {}
        for table, names in tables.items():
            for number, name in enumerate(names[: shown[table]], 1):
                self._anchors.setdefault(name, f"{table}-{number}")
        drawn = document.memory.composition or draw_memory(document.memory, document.timeline)
        self._memory = "memory" if drawn else None
        self._parts = document.breakdown
        self._step_us = document.step.typical_us

    def anchor_of(self, evidence: Evidence) -> str | None:
        """The row with the work that the evidence names; None if no table has it."""
        if evidence.what.startswith(_MEMORY):
            return self._memory
        return self._anchors.get(evidence.what.removeprefix(_WAITING))

    def part_of(self, card: Card) -> BreakdownPart | None:
        """The longest part of the step whose cause the card's rule measures."""
        mine = [part for part in self._parts if card.finding.code in rules_of_cause(part.name)]
        return max(mine, key=lambda part: part.us_per_step, default=None)

    def with_links(self, text: str, card: Card, shown: int) -> Iterator[tuple[str, str | None]]:
        """The pieces of a sentence of a card, each time with the anchor of what it was read or summed from: the step, a
        row of the evidence, all of its rows, or a part of the step. None for words, for times of no known place, and
        for times that are shown in several places.
        """
        places = self._places(card, shown)
        end = 0
        for match in _TIME.finditer(text):
            anchor = self._step_anchor(match) if match["step"] else places.get(_spelled(match))
            if anchor is not None:
                yield text[end : match.start("time")], None
                yield match["time"], anchor
                end = match.end("time")
        yield text[end:], None

    def _step_anchor(self, match: re.Match[str]) -> str | None:
        known = self._step_us is not None and ms_of_us(self._step_us) == _spelled(match)
        return "time" if known else None

    def _places(self, card: Card, shown: int) -> dict[str, str]:
        """Anchors by the time as a sentence gives it. If a row and the sum of all rows look the same, the other
        rows are next to nothing, and the table is the place. Other times that look the same have no known place.
        """
        times = [row.us_per_step for row in card.finding.evidence]
        known = [us for us in times if us is not None]
        mine = self.part_of(card)
        total = f"{card.anchor}-evidence"
        places = [(us, f"{card.anchor}-{number}") for number, us in enumerate(times[:shown], 1) if us is not None]
        rows = [anchor for _, anchor in places]
        places.append((sum(known), total if len(known) > 1 else "".join(rows)))
        places += [(mine.us_per_step, f"part-{mine.name}")] if mine is not None else []
        found: dict[str, list[str]] = {}
        for us, anchor in places:
            if us > 0 and anchor and anchor not in found.get(ms_of_us(us), []):
                found.setdefault(ms_of_us(us), []).append(anchor)
        sure = {}
        for text, anchors in found.items():
            of_rows = [anchor for anchor in anchors if anchor in rows]
            if len(anchors) == 1 or (len(of_rows) == len(rows) == 1):
                sure[text] = anchors[0]
            elif total in anchors and len(of_rows) < 2:
                sure[text] = total
        return sure


def _spelled(match: re.Match[str]) -> str:
    """The time of a sentence as tables have it, with a no-break space."""
    return NO_BREAK_SPACE.join(match["time"].split())


def gemm_name(gemm: Gemm) -> str:
    """A matmul as the evidence of findings names it: "aten::bmm 16 x 5185x64x5185 bf16"."""
    batch = f"{gemm.batch} x " if gemm.batch > 1 else ""
    return f"{gemm.op} {batch}{gemm.m}x{gemm.n}x{gemm.k} {gemm.dtype}"


def cards_of_part(cards: list[Card], part: BreakdownPart) -> list[Card]:
    """The numbered fixes whose rule measures this part of the step."""
    rules = rules_of_cause(part.name)
    return [card for card in cards if card.number is not None and card.finding.code in rules]
