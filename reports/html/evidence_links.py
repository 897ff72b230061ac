"""Where the numbers of a fix come from: the part of the step that it treats, and the table rows of its evidence."""

from __future__ import annotations

from traceopt.reports.words.concerned import rules_of_cause
from traceopt.reports.words.sentences import Card
from traceopt.result.document import Result
from traceopt.result.finding import Evidence
from traceopt.result.rows import BreakdownPart, Gemm

_WAITING = "Waiting for "  # before the operator that the GPU waited for
_MEMORY = ("Peak allocated", "At the peak:")


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

    def anchor_of(self, evidence: Evidence) -> str | None:
        """The row with the work that the evidence names; None if no table has it."""
        if evidence.what.startswith(_MEMORY):
            return self._memory
        return self._anchors.get(evidence.what.removeprefix(_WAITING))

    def part_of(self, card: Card) -> BreakdownPart | None:
        """The longest part of the step whose cause the card's rule measures."""
        mine = [part for part in self._parts if card.finding.code in rules_of_cause(part.name)]
        return max(mine, key=lambda part: part.us_per_step, default=None)


def gemm_name(gemm: Gemm) -> str:
    """A matmul as the evidence of findings names it: "aten::bmm 16 x 5185x64x5185 bf16"."""
    batch = f"{gemm.batch} x " if gemm.batch > 1 else ""
    return f"{gemm.op} {batch}{gemm.m}x{gemm.n}x{gemm.k} {gemm.dtype}"


def cards_of_part(cards: list[Card], part: BreakdownPart) -> list[Card]:
    """The numbered fixes whose rule measures this part of the step."""
    rules = rules_of_cause(part.name)
    return [card for card in cards if card.number is not None and card.finding.code in rules]
