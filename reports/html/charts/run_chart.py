"""The step times of the whole run as a line, with the step from which on they are different, and its memory."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from traceopt.result.document import Result
from traceopt.result.sections.run import RunMemory

WIDTH, HEIGHT = 600, 100  # of the viewBox
ROOM_ABOVE = 1.1
_MEMORY = {"device": "Tensors on the GPU", "process": "Resident memory of the process, without mapped files"}


class RunChart(Struct, frozen=True):
    """`points` make an SVG polyline; `change_left` is per cent of the chart, None without a change."""

    points: str
    change_left: float | None
    top_us: float
    first_step: int
    last_step: int
    caption: str


class MemoryChart(Struct, frozen=True):
    """As `RunChart`, for the memory of the GPU or of the process."""

    points: str
    most_bytes: int
    top_bytes: float
    first_step: int
    last_step: int
    caption: str


def draw_memory(result: Result) -> list[MemoryChart]:
    """Empty if memory was not read during the run."""
    run = result.whole_run
    return [_draw_memory(one) for one in (run.memory if run is not None else []) if len(one.steps) > 1]


def _draw_memory(memory: RunMemory) -> MemoryChart:
    most, first, last = max(memory.bytes), memory.steps[0], memory.steps[-1]
    top = most * ROOM_ABOVE or 1.0
    return MemoryChart(_polyline(memory.steps, memory.bytes, top), most, top, first, last, _MEMORY[memory.of])


def draw_run(result: Result) -> RunChart | None:
    """None if the document has no step times of the whole run."""
    history = result.whole_run.history if result.whole_run is not None else None
    if history is None or len(history.us) < 2 or max(history.us) <= 0:
        return None
    first, last = history.first_steps[0], history.first_steps[-1]
    top_us, length = max(history.us) * ROOM_ABOVE, max(1, last - first)
    points = _polyline(history.first_steps, history.us, top_us)
    change = history.change_step
    return RunChart(
        points,
        None if change is None else round(min(100.0, (change - first) / length * 100), 2),
        top_us,
        first,
        last,
        _caption(len(history.us), change),
    )


def _polyline(steps: Sequence[int], values: Sequence[float], top: float) -> str:
    first, length = steps[0], max(1, steps[-1] - steps[0])
    return " ".join(
        f"{(step - first) / length * WIDTH:.1f},{(1 - value / top) * HEIGHT:.1f}"
        for step, value in zip(steps, values, strict=True)
    )


def _caption(count: int, change: int | None) -> str:
    text = f"Step time over the whole run, without evaluations and saves, as medians of {count:,} stretches of steps."
    return text if change is None else f"{text} The line marks step {change:,}, from which on it is different."
