"""What files beside the trace say, in a few lines for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Callable

from traceopt.reports.words.companions import flight_recorder, gpu_samples, memory_snapshot, start_up, torch_compile
from traceopt.result.document import Result

# They return at most four sentences, none where the document has no such part.
_LINES: list[Callable[[Result], list[str]]] = [
    memory_snapshot.lines,
    torch_compile.lines,
    flight_recorder.lines,
    gpu_samples.lines,
    start_up.lines,
]


def companion_lines(result: Result) -> list[str]:
    """The sentences of all kinds of files, in the order of the report."""
    return [line for lines in _LINES for line in lines(result)]
