"""The losses of both sides of a change that was tried, as two lines of a small chart."""

from __future__ import annotations

from msgspec import Struct

from traceopt.result.trial import ComparedLosses

WIDTH, HEIGHT = 240, 60  # of the viewBox
LEAST_POINTS = 2


class LossChart(Struct, frozen=True):
    """Points of an SVG polyline for each side. `least` and `most` are the losses at the lower and the upper edge."""

    before: str
    after: str
    least: float
    most: float
    steps: int


def draw_losses(losses: ComparedLosses | None) -> LossChart | None:
    """None if there is no line to draw. Losses that are not finite leave a gap, which a line bridges."""
    if losses is None:
        return None
    known = [loss for loss in (*losses.before, *losses.after) if loss is not None]
    steps = max(len(losses.before), len(losses.after))
    if len(known) < 2 * LEAST_POINTS or steps < LEAST_POINTS:
        return None
    least, most = min(known), max(known)
    before, after = (_points(side, steps, least, most) for side in (losses.before, losses.after))
    return LossChart(before, after, least, most, steps)


def _points(side: list[float | None], steps: int, least: float, most: float) -> str:
    height = most - least or 1.0
    return " ".join(
        f"{step / (steps - 1) * WIDTH:.1f},{(most - loss) / height * HEIGHT:.1f}"
        for step, loss in enumerate(side)
        if loss is not None
    )
