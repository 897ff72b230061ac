"""The document as reports show it: safe strings, short paths, sorted parts."""

from __future__ import annotations

from msgspec.structs import replace

from traceopt.reports.words import safe_text
from traceopt.reports.words.shown_paths import with_shown_paths
from traceopt.result.document import Result
from traceopt.result.rows import BreakdownPart


def for_display(result: Result) -> Result:
    """The copy that renderers read. JSON and the document embedded in a report keep the original."""
    document = safe_text.cleaned(with_shown_paths(result))
    document = replace(document, breakdown=sorted(document.breakdown, key=_idle_first_largest_first))
    if document.combined is not None:
        after = sorted(document.combined.breakdown_after, key=_idle_first_largest_first)
        document = replace(document, combined=replace(document.combined, breakdown_after=after))
    return document


def _idle_first_largest_first(part: BreakdownPart) -> tuple[bool, float]:
    return part.busy, -part.us_per_step
