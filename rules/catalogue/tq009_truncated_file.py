"""TQ009: the file is damaged, and only part of it could be read."""

from __future__ import annotations

from traceopt.analyzer.tables.trace import TraceMeta
from traceopt.rules import TRACE_QUALITY, Facts, Findings, Fix, Rule, ms, threshold


class TruncatedFile(Rule):
    """Reports a file that ends too early, and events that could not be read: raw quotes and line breaks in names, bytes
    that are not UTF-8, times that are not numbers. All readable events are used. An event that could be read after its
    text was repaired is complete and does not count as lost.

    Why it matters: events are written by kind and thread, not in order of time. A file that ends early may lack the GPU
    side or the later operators, so idle time and shares may describe only what is left.

    How to fix: let the writer finish, and copy the trace afterwards.

        prof.export_chrome_trace("trace.json.gz")   # after the `with` block; check the disk's free space

    When it is wrong: bytes after the end of the document (a shorter file written over a longer one) count as lost
    events, although nothing of the trace is lost.

    Sources: Kineto issues 80, 336, 1336 and 1459; PyTorch issues 98432, 113001 and 130622.
    """

    code = "TQ009"
    name = "truncated-file"
    title = "Record the trace again and let the writer finish"
    family = TRACE_QUALITY

    max_lost_share: float = threshold(0.001, "largest accepted share of lost events")

    def check(self, facts: Facts) -> Findings:
        meta = facts.trace.meta
        if not meta.damage and meta.lost_events <= self.max_lost_share * (meta.event_count + meta.lost_events):
            return
        damage = f"The file is damaged: {meta.damage}." if meta.damage else "Parts of the file are unreadable."
        yield self.finding(
            why=(
                f"{damage} {_counts(meta)}. The events read cover {ms(facts.trace.duration_ns)}, and whole kinds of "
                "events may be missing. Write the trace again and let the writer finish."
            ),
            fix=Fix(
                "Export after the profiler has stopped, and copy the file after the writer has finished.",
                'prof.export_chrome_trace("trace.json.gz")',
            ),
            saving=None,
            evidence=[],
        )

    def passed(self, facts: Facts) -> str:
        unused = ", ".join(f"{count:,} {category}" for category, count in facts.quality.unread.items())
        return f"{_counts(facts.trace.meta)}." + (f" Counted but not used: {unused}." if unused else "")


def _counts(meta: TraceMeta) -> str:
    repaired = f" ({meta.repaired_events:,} of them repaired)" if meta.repaired_events else ""
    verb = "was" if meta.lost_events == 1 else "were"
    return f"{meta.event_count:,} events were read{repaired}, {meta.lost_events:,} {verb} lost"
