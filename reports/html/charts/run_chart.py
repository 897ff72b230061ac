"""The step times of the whole run as a line, with the step from which on they are different."""

from __future__ import annotations

from msgspec import Struct

from traceopt.result.document import Result

WIDTH, HEIGHT = 600, 100  # of the viewBox
ROOM_ABOVE = 1.1


class RunChart(Struct, frozen=True):
    """`points` make an SVG polyline; `change_left` is per cent of the chart, None without a change."""

    points: str
    change_left: float | None
    top_us: float
    first_step: int
    last_step: int
    caption: str


def draw_run(result: Result) -> RunChart | None:
    """None if the document has no step times of the whole run."""
    history = result.whole_run.history if result.whole_run is not None else None
    if history is None or len(history.us) < 2 or max(history.us) <= 0:
        return None
    first, last = history.first_steps[0], history.first_steps[-1]
    top_us, length = max(history.us) * ROOM_ABOVE, max(1, last - first)
    points = " ".join(
        f"{(step - first) / length * WIDTH:.1f},{(1 - us / top_us) * HEIGHT:.1f}"
        for step, us in zip(history.first_steps, history.us, strict=True)
    )
    change = history.change_step
    return RunChart(
        points,
        None if change is None else round(min(100.0, (change - first) / length * 100), 2),
        top_us,
        first,
        last,
        _caption(len(history.us), change),
    )


def _caption(count: int, change: int | None) -> str:
    text = f"Step time over the whole run, without evaluations and saves, as medians of {count:,} stretches of steps."
    return text if change is None else f"{text} The line marks step {change:,}, from which on it is different."
