"""The figures of a page, which charts.js draws by plotly.js in the place of the page's own drawings."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

from traceopt.reports.figures import compared, memory, ranks, roofline, steps, way
from traceopt.reports.figures.figure import FigureDict
from traceopt.result.comparison import Comparison
from traceopt.result.document import Result

HEIGHT = 360  # pixels
_LEGEND = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"}
_LAYOUT: dict[str, Any] = {
    "margin": {"t": 30, "r": 12, "b": 40, "l": 56},
    "paper_bgcolor": "var(--card)",
    "plot_bgcolor": "var(--card)",
    "uirevision": "kept",  # a view stays when the colors or the mark change
}
_TITLE = {"x": 0, "xref": "container", "font": {"size": 13, "color": "var(--mute)"}}


def comparison_figures(comparison: Comparison) -> dict[str, FigureDict]:
    """Those of the page of a comparison."""
    every = {"parts": (compared.draw_parts(comparison), 260), "steps": (compared.draw_steps(comparison), HEIGHT)}
    return {name: _in_page(figure, height=height) for name, (figure, height) in every.items() if figure["data"]}


def page_figures(document: Result, rank_documents: Sequence[Result], drawn: Set[str]) -> dict[str, FigureDict]:
    """By name of the drawing: those of `drawn` that have a figure. `rank_documents`: of each rank whose steps are
    drawn, the shown one first.
    """
    every = {"ranks": ranks.draw(document), "roofline": roofline.draw(document), "memory": memory.draw(document)}
    every |= {"way": way.draw(document), "run": steps.draw_run(document), "run-memory": memory.draw_run(document)}
    every |= {f"steps-{number}" if number else "steps": steps.draw(one) for number, one in enumerate(rank_documents)}
    figures = {name: _in_page(figure) for name, figure in every.items() if name in drawn}
    if "run-ranks" in drawn:  # as high as its rows
        heat_map = ranks.draw_run(document)
        figures["run-ranks"] = _in_page(heat_map, height=heat_map["layout"]["height"], titled=False)
    return figures


def _in_page(figure: FigureDict, *, height: int = HEIGHT, titled: bool = True) -> FigureDict:
    """A figure on the page's ground. Its title is that of its section, unless it has no legend to explain it. Not
    `titled`: the section explains it.
    """
    layout, explained = figure["layout"], any(trace.get("showlegend", True) for trace in figure["data"])
    title = {} if explained or not titled else layout["title"] | _TITLE
    fitted = {**_LAYOUT, "legend": layout.get("legend", {}) | _LEGEND, "height": height, "title": title}
    return {"data": figure["data"], "layout": layout | fitted}
