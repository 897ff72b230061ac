"""Where the numbers of a fix come from: the part of the step that it treats, and the table rows of its evidence."""

from __future__ import annotations

import re
from collections.abc import Iterator

from traceopt.reports.words.concerned import rules_of_cause
from traceopt.reports.words.sentences import Card
from traceopt.result.document import Result
from traceopt.result.finding import Evidence
from traceopt.result.quantities import ms_number
from traceopt.result.rows import BreakdownPart, Gemm

_WAITING = "Waiting for "  # before the operator that the GPU waited for
_MEMORY = ("Peak allocated", "At the peak:")
_TIME = re.compile(r"(?<![\w.,])(\d[\d,]*(?:\.\d+)?)\sms\b")


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
        self._memory = "memory" if document.memory.peak_allocated_bytes is not None else None
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
        """The pieces of a sentence of a card, each time with the anchor of what it was read or summed from: a row of
        the evidence, all of its rows, a part of the step, or the step. None for words, and for times of no known place.
        """
        places = self._times(card, shown)
        end = 0
        for match in _TIME.finditer(text):
            anchor = places.get(match[1])
            if anchor is not None:
                yield text[end : match.start()], None
                yield match[0], anchor
                end = match.end()
        yield text[end:], None

    def _times(self, card: Card, shown: int) -> dict[str, str]:
        """Anchors by the time as a sentence gives it, in ms. Evidence comes before the parts of the step."""
        times = [row.us_per_step for row in card.finding.evidence]
        known = [us for us in times if us is not None]
        named = [(us, f"{card.anchor}-{number}") for number, us in enumerate(times[:shown], 1) if us is not None]
        if len(known) > 1:
            named.append((sum(known), f"{card.anchor}-evidence"))
        mine = self.part_of(card)
        named += [(part.us_per_step, f"part-{part.name}") for part in ([mine] if mine else [])]
        if self._step_us is not None:
            named.append((self._step_us, "time"))
        return {ms_number(us): anchor for us, anchor in reversed(named) if us > 0}


def gemm_name(gemm: Gemm) -> str:
    """A matmul as the evidence of findings names it: "aten::bmm 16 x 5185x64x5185 bf16"."""
    batch = f"{gemm.batch} x " if gemm.batch > 1 else ""
    return f"{gemm.op} {batch}{gemm.m}x{gemm.n}x{gemm.k} {gemm.dtype}"


def cards_of_part(cards: list[Card], part: BreakdownPart) -> list[Card]:
    """The numbered fixes whose rule measures this part of the step."""
    rules = rules_of_cause(part.name)
    return [card for card in cards if card.number is not None and card.finding.code in rules]
