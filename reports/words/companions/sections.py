"""What the reports show of the files beside the trace, all kinds in the order of the page."""

from __future__ import annotations

from collections.abc import Callable

from traceopt.reports.words.companions import (
    compile_words,
    flight_recorder_words,
    gpu_samples_words,
    memory_snapshot_words,
    start_up_words,
)
from traceopt.reports.words.companions.section import CompanionSection
from traceopt.result.document import Result

# They return None if the document has no such part, or nothing worth showing in it.
_SECTIONS: list[Callable[[Result], CompanionSection | None]] = [
    memory_snapshot_words.section,
    compile_words.section,
    flight_recorder_words.section,
    gpu_samples_words.section,
    start_up_words.section,
]


def companion_sections(result: Result) -> list[CompanionSection]:
    """The sections that this document has."""
    made = (section(result) for section in _SECTIONS)
    return [section for section in made if section is not None]


def companion_lines(result: Result) -> list[str]:
    """A few sentences of each section, for the terminal and for Markdown."""
    return [line for section in companion_sections(result) for line in section.lines]
