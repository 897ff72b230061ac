"""The document as reports show it: safe strings, short paths, sorted parts."""

from __future__ import annotations

from msgspec.structs import replace

from traceopt.reports.words import safe_text
from traceopt.reports.words.shown_paths import with_shown_paths
from traceopt.result.document import Result
from traceopt.result.sections.work_rows import BreakdownPart


def for_display(result: Result) -> Result:
    """The copy that renderers read. JSON and the document embedded in a report keep the original."""
    document = safe_text.cleaned(with_shown_paths(result))
    document = replace(document, breakdown=sorted(document.breakdown, key=_idle_first_largest_first))
    if document.combined is not None:
        after = sorted(document.combined.breakdown_after, key=_idle_first_largest_first)
        document = replace(document, combined=replace(document.combined, breakdown_after=after))
    return document if document.quality.verdict == "unusable" else _without_repetition(document)


def _without_repetition(document: Result) -> Result:
    """The document without sentences of the quality notes that the verdict says already."""
    notes = []
    for note in document.quality.notes:
        sentences = safe_text.split_sentences(note.text)
        new = [sentence for sentence in sentences if sentence not in document.verdict]
        if new:
            notes.append(note if new == sentences else replace(note, text=" ".join(new)))
    return replace(document, quality=replace(document.quality, notes=notes))


def _idle_first_largest_first(part: BreakdownPart) -> tuple[bool, float]:
    return part.busy, -part.us_per_step
