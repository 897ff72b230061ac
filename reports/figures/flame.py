"""The call tree of the main thread in the step shown, as an icicle."""

from __future__ import annotations

from traceopt.analyzer.vocabulary.python_frames import is_python
from traceopt.reports.figures.figure import FigureDict, color, figure, label, lines, nothing
from traceopt.reports.words.charts.flame_looks import node_look
from traceopt.result.document import Result
from traceopt.result.sections.timeline_rows import FlameGraph, FlameNode
from traceopt.result.words import quantities

TITLE = "Flame graph"
BOX = 34  # characters of a name
DEPTH = 24  # levels drawn at a time; a click goes deeper


def draw(document: Result) -> FigureDict:
    """Widths are host time. GPU work has no box of its own: each call says what it launched."""
    flame = document.flame
    if flame is None:
        return nothing(TITLE, "It needs Python stacks with times: record with with_stack=True.")
    shown = {place: node for place, node in enumerate(flame.nodes) if node.kind != "kernel" and node.total_us > 0}
    looks = [node_look(node) for node in shown.values()]
    step = f"{flame.step}, {quantities.ms_of_us(flame.duration_us)}"
    return figure(
        TITLE,
        [
            {
                "type": "icicle",
                "branchvalues": "total",
                "maxdepth": DEPTH,
                "ids": ["step", *map(str, shown)],
                "labels": [label(flame.step), *(_box(flame.frames[node.frame]) for node in shown.values())],
                "parents": ["", *(_parent(node) for node in shown.values())],
                "values": _widths(flame, shown),
                "hovertext": [
                    lines(step),
                    *(_hover(flame, node, look) for node, (_, look) in zip(shown.values(), looks, strict=True)),
                ],
                "hoverinfo": "text",
                "marker": {"colors": [color("wait"), *(color(token) for token, _ in looks)]},
                "tiling": {"orientation": "v"},
                "leaf": {"opacity": 1},
            }
        ],
        subtitle=f"What the main thread did in {step}, by call. Choose a call to see it alone.",
        height=640,
        uniformtext={"minsize": 9, "mode": "hide"},
        margin={"t": 80, "l": 10, "r": 10, "b": 10},
    )


def _box(frame: str) -> str:
    """Of a Python frame only the function: few boxes have room for the file."""
    return label(frame.rsplit(": ", 1)[-1] if is_python(frame) else frame, BOX)


def _parent(node: FlameNode) -> str:
    return "step" if node.parent < 0 else str(node.parent)


def _widths(flame: FlameGraph, shown: dict[int, FlameNode]) -> list[float]:
    """The times of the step and of the nodes, none less than its calls together: rounding must not leave them without
    room.
    """
    below: dict[str, float] = {}
    widths: dict[int, float] = {}
    for place, node in reversed(shown.items()):  # callees come before callers
        widths[place] = max(node.total_us, below.get(str(place), 0.0))
        below[_parent(node)] = below.get(_parent(node), 0.0) + widths[place]
    return [max(flame.duration_us, below.get("step", 0.0)), *(widths[place] for place in shown)]


def _hover(flame: FlameGraph, node: FlameNode, look: str) -> str:
    total, own = quantities.ms_of_us(node.total_us), quantities.ms_of_us(node.self_us)
    share = quantities.percent(node.total_us / flame.duration_us) if flame.duration_us else ""
    return lines(
        flame.frames[node.frame],
        f"{look}: {total}, {share} of the step",
        f"{own} without the calls below",
        f"launched {quantities.ms_of_us(node.gpu_us)} of GPU work" if node.gpu_us else "",
    )
