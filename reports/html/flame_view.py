"""What flame.js needs to draw the flame graph, and the sentence above it. Times are ms."""

from __future__ import annotations

import re
from typing import Any

from traceopt.analyzer.vocabulary.causes.span_categories import ANNOTATED, CALL, CPU, GPU_COMPUTE, PYTHON_CODE
from traceopt.reports.words.part_styles import span_look
from traceopt.reports.words.step_words import step_noun
from traceopt.result.document import Result
from traceopt.result.rows import FlameGraph
from traceopt.result.words.quantities import ms

US_PER_MS = 1_000
_PYTHON = ("user", "library")
_LOOKS = {
    "user": (PYTHON_CODE.color, "Your code"),
    "library": (PYTHON_CODE.color, "Library code"),
    "annotation": (ANNOTATED.color, ANNOTATED.label),
    "operator": (CPU.color, CPU.label),
    "runtime": (CALL.color, CALL.label),
    "kernel": (GPU_COMPUTE.color, GPU_COMPUTE.label),
}
NS_PER_US = 1_000
_FRAME = re.compile(r"(?P<folder>.*[/\\])?(?P<file>[^/\\]+)\((?P<line>\d+)\): (?P<function>.+)", re.DOTALL)


def flame_view(document: Result) -> dict[str, Any] | None:
    """None if the document has no flame graph."""
    flame = document.flame
    if flame is None:
        return None
    return {
        "duration": flame.duration_us / US_PER_MS,
        "frames": flame.frames,
        "labels": [short_frame(frame) for frame in flame.frames],
        "gpu": bool(flame.gpu_us),
        "parent": [node.parent for node in flame.nodes],
        "frame": [node.frame for node in flame.nodes],
        "kind": [node.kind for node in flame.nodes],
        "color": [color for color, _ in _looks(flame)],
        "total": [node.total_us / US_PER_MS for node in flame.nodes],
        "self": [node.self_us / US_PER_MS for node in flame.nodes],
        "gpuTotal": [node.gpu_us / US_PER_MS for node in flame.nodes],
    }


def _looks(flame: FlameGraph) -> list[tuple[str, str]]:
    """Color and name of each node, as in the timeline. A Python frame inside data loading is part of it."""
    looks: list[tuple[str, str]] = []
    categories: list[str] = []  # callers come before callees
    for node in flame.nodes:
        of_caller = categories[node.parent] if node.parent >= 0 and node.kind in _PYTHON else ""
        categories.append(node.category or of_caller)
        looks.append(span_look(categories[-1]) if categories[-1] else _LOOKS[node.kind])
    return looks


def key(document: Result) -> list[tuple[str, str, bool]]:
    """Color and name of each look that is drawn, and whether it is code of the user; Python frames come first."""
    looks = [] if document.flame is None else _looks(document.flame)
    return sorted(
        {(*look, look == _LOOKS["user"]) for look in looks},
        key=lambda look: (look[1] != "Your code", look[1] != "Library code", look[1]),
    )


def short_frame(name: str) -> str:
    """ "/home/me/train.py(12): load" -> "load (train.py:12)"; other names stay as they are."""
    match = _FRAME.fullmatch(name)
    return name if match is None else f"{match['function']} ({match['file']}:{match['line']})"


def caption(document: Result) -> str:
    flame = document.flame
    if flame is None:
        return ""
    step = "the recording" if step_noun(document) == "recording" else flame.step
    text = f"What the main thread did in {step}, by call. Recording Python frames slows the host down."
    if flame.backward_gpu_us:
        text += " Backward GPU work counts for the line of its forward operator."
    if flame.other_gpu_us:
        text += f" {ms(flame.other_gpu_us * NS_PER_US)} of the GPU work has no known line."
    return text
