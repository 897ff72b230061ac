"""The document as reports show it: safe strings, parts in order, no price where the trace cannot carry one."""

from __future__ import annotations

from msgspec.structs import replace

from traceopt.reports.words import quantities
from traceopt.result.document import Result
from traceopt.result.rows import BreakdownPart


def shown(result: Result) -> Result:
    """What renderers read; JSON and the document embedded in a report keep the original."""
    document = quantities.cleaned(result)
    document = replace(document, breakdown=sorted(document.breakdown, key=_idle_first_largest_first))
    if document.combined is not None:
        after = sorted(document.combined.breakdown_after, key=_idle_first_largest_first)
        document = replace(document, combined=replace(document.combined, breakdown_after=after))
    if document.quality.verdict != "unusable":
        return document
    # The evidence stands. Savings, and the impact that is read from them, are shares of times that are not real.
    findings = [replace(finding, saving=None, impact="info") for finding in document.findings]
    return replace(document, findings=findings, combined=None)


def _idle_first_largest_first(part: BreakdownPart) -> tuple[bool, float]:
    return part.busy, -part.us_per_step
