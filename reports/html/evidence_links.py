"""Where the numbers of a fix come from: the part of the step that it treats, and the table rows of its evidence."""

from __future__ import annotations

from collections.abc import Iterator

from traceopt.reports.html.charts.timeline_svg import draw_memory
from traceopt.reports.words.fixes.card_lookup import rules_of_cause
from traceopt.reports.words.fixes.fix_cards import Card
from traceopt.result.document import Result
from traceopt.result.finding import Evidence
from traceopt.result.sections.work_rows import BreakdownPart
from traceopt.result.tables.rank_tables import COLLECTIVES
from traceopt.result.tables.step_tables import COPIES, GEMMS, KERNELS, OPERATORS
from traceopt.result.words.kernel_names import gemm_name
from traceopt.result.words.message import Message, Slot
from traceopt.result.words.rounding import us

_ROUNDED_US = 0.001  # two times that differ by less are the same, rounded in different places


class EvidenceLinks:
    """Looks up names of evidence among the shown rows of the tables. A row's anchor is its table and its number."""

    def __init__(self, document: Result) -> None:
        """`document` is cleaned for display."""
        tables = {
            GEMMS: [gemm_name(gemm) for gemm in document.gemms],
            KERNELS: [kernel.label or kernel.name for kernel in document.kernels],
            COLLECTIVES: [row.name for row in document.communication.collectives],
            COPIES: [row.kind for row in document.copies],
            OPERATORS: [op.name for op in document.ops],
        }
        self._anchors: dict[str, str] = {}
        for table, names in tables.items():
            for number, name in enumerate(names[: table.most], 1):
                self._anchors.setdefault(name, f"{table.name}-{number}")
        drawn = document.memory.composition or draw_memory(document.memory, document.timeline)
        self._memory = "memory" if drawn else None
        self._parts = document.breakdown

    def anchor_of(self, evidence: Evidence) -> str | None:
        """The row with the work that the evidence names; None if no table has it."""
        what = Message(evidence.what)
        if what.has("memory"):
            return self._memory
        names = (str(part.value) for part in what.parts if isinstance(part, Slot) and part.kind == "name")
        return next((self._anchors[name] for name in names if name in self._anchors), None)

    def part_of(self, card: Card) -> BreakdownPart | None:
        """The longest part of the step whose cause the card's rule measures."""
        mine = [part for part in self._parts if card.finding.code in rules_of_cause(part.name)]
        return max(mine, key=lambda part: part.us_per_step, default=None)

    def with_links(self, text: str, card: Card, shown: int) -> Iterator[tuple[str, str | None]]:
        """The pieces of a message of a card, each time with the anchor of what it was read or summed from: the step, a
        row of the evidence, all of its rows, or a part of the step. None for words, and for times of no known place.
        """
        for part in Message(text).parts:
            if isinstance(part, str):
                yield part, None
            else:
                yield part.text, self._anchor(part, card, shown)

    def _anchor(self, slot: Slot, card: Card, shown: int) -> str | None:
        if slot.kind == "step":
            return "time"
        return self._place(us(slot.value), card, shown) if slot.kind == "time" else None

    def _place(self, time_us: float, card: Card, shown: int) -> str | None:
        """The row of the evidence with this time; all rows if that is their sum; or else the part of the step."""
        times = [row.us_per_step for row in card.finding.evidence]
        rows = [number for number, us in enumerate(times[:shown], 1) if us is not None and _same(us, time_us)]
        if len(rows) == 1:
            return f"{card.anchor}-{rows[0]}"
        known = [us for us in times if us is not None]
        if len(known) > 1 and _same(sum(known), time_us, len(known)):
            return f"{card.anchor}-evidence"
        mine = self.part_of(card)
        return f"part-{mine.name}" if mine is not None and _same(mine.us_per_step, time_us) else None


def _same(us: float, other_us: float, summands: int = 1) -> bool:
    """Whether two times are the same but for the rounding of each summand."""
    return us > 0 and abs(us - other_us) <= _ROUNDED_US * summands
