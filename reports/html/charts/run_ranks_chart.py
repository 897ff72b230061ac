"""The ranks over the whole run as a heat map: rows of cells in SVG paths, one for each color and strength."""

from __future__ import annotations

from msgspec import Struct

from traceopt.reports.words.charts.run_ranks import HeatMap, run_heat_map
from traceopt.result.document import Result

WIDTH, ROW_HEIGHT = 1000, 10  # of the viewBox
STRENGTHS = 6  # of a color; cells without one of these stay empty


class Cells(Struct, frozen=True):
    """All cells of a color and an opacity, as a path."""

    color: str
    opacity: float
    path: str


class RunRanksDrawing(Struct, frozen=True):
    """In a viewBox of `width` x `height`, with the names of the rows from the top."""

    names: list[str]
    cells: list[Cells]
    width: int
    height: int
    steps: int
    caption: str


def draw_run_ranks(result: Result) -> RunRanksDrawing | None:
    """None for a run without the steps of several ranks."""
    heat_map = run_heat_map(result)
    if heat_map is None:
        return None
    names = [row.name for row in heat_map.rows]
    height = ROW_HEIGHT * len(names)
    return RunRanksDrawing(names, _cells(heat_map), WIDTH, height, heat_map.steps, heat_map.caption)


def _cells(heat_map: HeatMap) -> list[Cells]:
    edges = [round(step / heat_map.steps * WIDTH, 1) for step in [*heat_map.first_steps, heat_map.steps]]
    paths: dict[tuple[str, int], list[str]] = {}
    for row, cells in enumerate(heat_map.rows):
        for at, (color, opacity) in enumerate(zip(cells.colors, cells.opacities, strict=True)):
            if strength := round(opacity * STRENGTHS):
                box = f"M{edges[at]} {row * ROW_HEIGHT}H{edges[at + 1]}v{ROW_HEIGHT}H{edges[at]}z"
                paths.setdefault((color, strength), []).append(box)
    return [
        Cells(color, round(strength / STRENGTHS, 2), "".join(boxes))
        for (color, strength), boxes in sorted(paths.items())
    ]
