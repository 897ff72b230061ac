"""What flame.js needs to draw the flame graph, and the sentence above it. Times are ms."""

from __future__ import annotations

from typing import Any

from traceopt.analyzer.vocabulary.causes.span_categories import WAIT
from traceopt.reports.words.charts.flame_looks import KIND_LOOKS
from traceopt.reports.words.part_styles import span_look
from traceopt.reports.words.step_words import step_noun
from traceopt.result.document import Result
from traceopt.result.words.quantities import ms

US_PER_MS = 1_000
NS_PER_US = 1_000


def flame_view(document: Result) -> dict[str, Any] | None:
    """None if the document has no flame graph. A look is a color and a name, as in the timeline."""
    flame = document.flame
    if flame is None:
        return None
    return {
        "duration": flame.duration_us / US_PER_MS,
        "frames": flame.frames,
        "gpu": bool(flame.gpu_us),
        "kindLooks": KIND_LOOKS,
        "wait": span_look(WAIT.key),
        "parent": [node.parent for node in flame.nodes],
        "frame": [node.frame for node in flame.nodes],
        "kind": [node.kind for node in flame.nodes],
        "look": [span_look(node.category) if node.category else None for node in flame.nodes],
        "total": [node.total_us / US_PER_MS for node in flame.nodes],
        "self": [node.self_us / US_PER_MS for node in flame.nodes],
        "gpuTotal": [node.gpu_us / US_PER_MS for node in flame.nodes],
    }


def threads(document: Result) -> list[tuple[int, str]]:
    """Place and name of each lane of a thread in the table of spans, the main thread first."""
    table = None if document.timeline is None else document.timeline.table
    lanes = [] if table is None else table.lanes
    return [(place, f"{lane.name} ({lane.detail})") for place, lane in enumerate(lanes) if lane.kind == "thread"]


def caption(document: Result) -> tuple[str, str]:
    """What is drawn at first, and how to read it."""
    flame = document.flame
    if flame is None:
        return "", ""
    step = "the recording" if step_noun(document) == "recording" else flame.step
    reading = "Recording Python frames slows the host down."
    if flame.backward_gpu_us:
        reading += " Backward GPU work counts for the line of its forward operator."
    if flame.other_gpu_us:
        reading += f" {ms(flame.other_gpu_us * NS_PER_US)} of the GPU work has no known line."
    return f"What the main thread did in {step}, by call.", reading
