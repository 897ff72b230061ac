"""How the nodes of a flame graph look: as the same spans in the timeline."""

from __future__ import annotations

from traceopt.analyzer.vocabulary.causes.span_categories import ANNOTATED, CALL, CPU, GPU_COMPUTE, PYTHON_CODE
from traceopt.reports.words.part_styles import span_look
from traceopt.result.sections.timeline_rows import FlameNode

KIND_LOOKS = {  # color and name
    "user": (PYTHON_CODE.color, "Your code"),
    "library": (PYTHON_CODE.color, "Library code"),
    "annotation": (ANNOTATED.color, ANNOTATED.label),
    "operator": (CPU.color, CPU.label),
    "runtime": (CALL.color, CALL.label),
    "kernel": (GPU_COMPUTE.color, GPU_COMPUTE.label),
    "thread": ("other", "Thread"),
}


def node_look(node: FlameNode) -> tuple[str, str]:
    """Color and name."""
    return span_look(node.category) if node.category else KIND_LOOKS[node.kind]
