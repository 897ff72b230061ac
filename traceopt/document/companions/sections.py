"""What each kind of file beside the trace adds to the result document, and its sentence where there is no trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from traceopt.analyzer.facts import Facts
from traceopt.document.companions import (
    compile_section,
    flight_recorder_section,
    gpu_samples_section,
    memory_snapshot_section,
    start_up_section,
)

# Fields of `Result`, and the functions that make them; they return None where there is no such file.
_SECTIONS: dict[str, Callable[[Facts], Any]] = {
    "memory_snapshot": memory_snapshot_section.section,
    "torch_compile": compile_section.section,
    "flight_recorder": flight_recorder_section.section,
    "gpu_samples": gpu_samples_section.section,
    "start_up": start_up_section.section,
}

# The headline of a run without a trace: the first of these that has something to say. They return None otherwise.
_HEADLINES: list[Callable[[Facts], str | None]] = [
    flight_recorder_section.headline,
    memory_snapshot_section.headline,
    compile_section.headline,
    gpu_samples_section.headline,
]


def companion_sections(facts: Facts) -> dict[str, Any]:
    """Fields of `Result` by name."""
    return {name: section(facts) for name, section in _SECTIONS.items()}


def companion_ending(facts: Facts) -> str | None:
    """How the run ended, if these files show that it hangs or ran out of memory."""
    return flight_recorder_section.ending(facts) or memory_snapshot_section.ending(facts)


def companion_headline(facts: Facts) -> str:
    """What the files say, in one or two sentences."""
    said = (headline(facts) for headline in _HEADLINES)
    return next((sentence for sentence in said if sentence), "These files show no problem.")
