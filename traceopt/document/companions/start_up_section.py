"""The section of the result document about the start-up of the run."""

from __future__ import annotations

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.vocabulary.phases.start_up_parts import START_UP_LABELS
from traceopt.result.sections.companions import StartUpLineRow, StartUpPartRow, StartUpSection
from traceopt.result.words.rounding import share, us

NOTABLE_SHARE = 0.1  # of the run
MOST_LINES = 5
LINE_SHARE = 0.01  # of the start-up; shorter lines say little, but the first of a part is kept


def section(facts: Facts) -> StartUpSection | None:
    """None if the start-up was not measured."""
    known, ledger = facts.captured.start_up, facts.captured.ledger
    if known is None or ledger is None:
        return None
    of_run = share(known.total_ns / max(known.total_ns, ledger.whole_run.total_ns))
    return StartUpSection(
        us=us(known.total_ns),
        run_share=None if facts.captured.cut_short else of_run,
        notable=of_run > NOTABLE_SHARE,
        rank=facts.trace.meta.rank,
        interval_us=us(known.interval_ns),
        parts=[
            StartUpPartRow(
                part.name,
                START_UP_LABELS[part.name],
                us(part.total_ns),
                share(part.total_ns / known.total_ns),
                [
                    StartUpLineRow(line.location, us(line.total_ns), line.what)
                    for line in part.lines[:MOST_LINES]
                    if line is part.lines[0] or line.total_ns >= LINE_SHARE * known.total_ns
                ],
            )
            for part in known.parts
        ],
    )
