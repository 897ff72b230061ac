"""TQ009: the file is damaged, and only a part of it could be read."""

from __future__ import annotations

from typing import ClassVar

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.tables.trace import TraceMeta
from traceopt.result.finding import Fix
from traceopt.result.quantities import ms
from traceopt.rules.registry import TRACE_QUALITY
from traceopt.rules.rule import Findings, Rule, threshold


class TruncatedFile(Rule):
    """Reports a file that ends too early, and events that could not be read: raw quotes and line breaks in names, bytes
    that are no UTF-8, times that are no numbers. Every event that can be read is kept; an event that was read after its
    text was mended is whole, and no reason for a note.

    Why it matters: events are written by kind and thread, not in order of time. A file that ends early may lack the
    GPU's side, or the later operators, so idle time and shares may be those of what is left.

    How to fix: write the trace to the end, and copy it when the writer is done.

        prof.export_chrome_trace("trace.json.gz")   # after the `with` block; check the disk's free space

    When it is wrong: bytes behind the end of the document (a shorter file written over a longer one) count as lost
    events, though nothing of the trace is.

    Sources: Kineto issues 80, 336, 1336 and 1459; PyTorch issues 98432, 113001 and 130622.
    """

    code: ClassVar[str] = "TQ009"
    name: ClassVar[str] = "truncated-file"
    title: ClassVar[str] = "Record the file again, to its end"
    family: ClassVar[str] = TRACE_QUALITY

    max_lost_share: float = threshold(0.001, "share of the events that may be lost without a note")

    def check(self, facts: Facts) -> Findings:
        meta = facts.trace.meta
        if not meta.damage and meta.lost_events <= self.max_lost_share * (meta.event_count + meta.lost_events):
            return
        damage = f"The file is damaged: {meta.damage}." if meta.damage else "Parts of the file are not readable."
        yield self.finding(
            why=(
                f"{damage} {_counts(meta)}; they cover {ms(facts.trace.duration_ns)}, and kinds of events may be "
                "missing from it. Write the trace again and let the writer finish."
            ),
            fix=Fix(
                "Export after the profiler has stopped, and copy the file when the writer is done.",
                'prof.export_chrome_trace("trace.json.gz")',
            ),
            saving=None,
            evidence=[],
        )

    def passed(self, facts: Facts) -> str:
        return f"{_counts(facts.trace.meta)}."


def _counts(meta: TraceMeta) -> str:
    mended = f" ({meta.repaired_events:,} of them mended)" if meta.repaired_events else ""
    return f"{meta.event_count:,} events were read{mended}, {meta.lost_events:,} were lost"
