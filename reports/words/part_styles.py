"""The parts of the step: the color, pattern and explanation of each.

Busy parts are plain and idle parts have a pattern, so that color is never the only difference.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from msgspec import Struct

from traceopt.result.rows import BreakdownPart


class PartStyle(Struct, frozen=True):
    """`color` is a token of report.css, `pattern` one of its `p-` classes, `detail` explains the part."""

    color: str
    pattern: str
    detail: str


PLAIN = ""

PARTS: dict[str, PartStyle] = {
    # busy, with a GPU
    "compute": PartStyle("compute", PLAIN, ""),
    "communication": PartStyle("comm", PLAIN, "not overlapped"),
    "copies": PartStyle("copy", PLAIN, "not overlapped"),
    # busy, CPU-only run
    "forward": PartStyle("compute", PLAIN, ""),
    "backward": PartStyle("backward", PLAIN, ""),
    "optimizer": PartStyle("copy", PLAIN, ""),
    "model": PartStyle("cpu", PLAIN, "operators outside known phases"),
    # idle. Gray is for time of which nothing is known.
    "data_loading": PartStyle("loader", "diagonal", "in next(loader)"),
    "loader_startup": PartStyle("loader", "vertical", "worker processes and their first batch"),
    "input_work": PartStyle("input", "cross", "decoding, tokenizing, transforms"),
    "host_copy": PartStyle("loader", "horizontal", "in calls that copy to the GPU"),
    "post_processing": PartStyle("input", "dots", "results turned into boxes, text, files"),
    "sleep": PartStyle("host", "horizontal", "in time.sleep"),
    "thread_wait": PartStyle("loader", "cross", "queue.get, join, result"),
    "program": PartStyle("host", "cross", "started with subprocess or os.system"),
    "os_wait": PartStyle("host", "vertical", "poll, sem_wait, read"),
    "host_sync": PartStyle("sync", "horizontal", "after .item(), .cpu()"),
    "logging": PartStyle("sync", "dots", "print, loggers, metric writers, images"),
    "checkpoint": PartStyle("sync", "vertical", ""),
    "launch": PartStyle("launch", "vertical", "the GPU waits for its next kernel"),
    "python": PartStyle("python", "horizontal", ""),
    "long_python": PartStyle("python", "cross", "for a millisecond or longer"),
    "cpu_op": PartStyle("host", "diagonal", "operators that launch nothing"),
    "small_ops": PartStyle("host", "dots", "such as views"),
    "compile": PartStyle("launch", "diagonal", "inside the step"),
    "hole": PartStyle("launch", "dots", "often garbage collection"),
    "gc": PartStyle("driver", "diagonal", ""),
    "allocation": PartStyle("driver", "horizontal", "calls of the driver's allocator"),
    "startup": PartStyle("sync", "cross", "once, at the start of a process"),
    "module_load": PartStyle("driver", "vertical", "kernels loaded on first use"),
    "queued": PartStyle("queue", "cross", ""),
    "unrecorded": PartStyle("cpu", "cross", ""),
    "untraced": PartStyle("other", "dots", ""),
}

# Timeline spans by category: their color, and their name in the key below the chart.
SPANS: dict[str, tuple[str, str]] = {
    "cpu": ("cpu", "CPU working"),
    "python": ("python", "Python"),
    "annotation": ("range", "Annotation"),
    "runtime": ("launch", "Launches and other calls"),
    "wait": ("wait", "CPU waiting"),
    "loader": ("loader", "Waiting for data"),
    "input": ("input", "Preparing input, post-processing"),
    "forward": ("compute", "Forward and other operators"),
    "backward": ("backward", "Backward"),
    "optimizer": ("copy", "Optimizer"),
    "logging": ("sync", "Logging"),
    "checkpoint": ("sync", "Checkpoint"),
    "gc": ("other", "Garbage collection"),
    "compute": ("compute", "GPU compute"),
    "comm": ("comm", "Communication"),
    "copy": ("copy", "Copies"),
}
_OTHER_SPAN = ("other", "Other")
_IDLE = "GPU idle"


def part_style(name: str, busy: bool) -> PartStyle:
    """The look of a part. A part that this version does not know is gray, and dotted if idle."""
    known = PARTS.get(name)
    if known is None:
        return PartStyle("other", PLAIN if busy else "dots", "")
    if busy:
        return PartStyle(known.color, PLAIN, known.detail)
    return PartStyle(known.color, known.pattern or "dots", known.detail)


def span_color(category: str) -> str:
    return span_look(category)[0]


def is_idle(category: str) -> bool:
    """Whether a category is the cause of an idle gap: the gap itself names it."""
    return category in PARTS and category not in SPANS


def span_look(category: str) -> tuple[str, str]:
    """Color and name of a category. Idle gaps have the color of their cause, as in the parts of the step."""
    return (PARTS[category].color, _IDLE) if is_idle(category) else SPANS.get(category, _OTHER_SPAN)


def span_words(categories: Set[str]) -> list[tuple[str, str]]:
    """Color and name of each category present, in the order of the table."""
    known = [look for category, look in SPANS.items() if category in categories]
    return known + ([_OTHER_SPAN] if categories - SPANS.keys() else [])


def small_parts_together(parts: Sequence[BreakdownPart], small_share: float) -> list[BreakdownPart]:
    """The idle parts, then the busy parts, each side with the largest first. Two or more of a side with less than
    `small_share` of the step become one.
    """
    shown: list[BreakdownPart] = []
    for busy in (False, True):
        side = [part for part in parts if part.busy is busy]
        small = [part for part in side if part.share < small_share]
        if len(small) < 2:
            shown += side
            continue
        us, share = sum(part.us_per_step for part in small), sum(part.share for part in small)
        shown += [part for part in side if part.share >= small_share]
        shown.append(BreakdownPart("smaller", f"{len(small)} smaller parts", busy, us, share, None))
    return shown
