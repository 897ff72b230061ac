"""The sections of the report that come from files beside the trace."""

from __future__ import annotations

from collections.abc import Callable

from traceopt.reports.html.companions import flight_recorder, gpu_samples, memory_snapshot, start_up, torch_compile
from traceopt.reports.html.companions.section import Section
from traceopt.result.document import Result

# They take the cleaned document, and return None where it has no such section. In the order of the page.
_SECTIONS: list[Callable[[Result], Section | None]] = [
    memory_snapshot.section,
    torch_compile.section,
    flight_recorder.section,
    gpu_samples.section,
    start_up.section,
]


def sections(result: Result) -> list[Section]:
    """The sections that this document has."""
    made = (section(result) for section in _SECTIONS)
    return [section for section in made if section is not None]
