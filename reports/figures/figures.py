"""`result.figures` and `comparison.figures`: figures for plotly.py, made when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traceopt.reports.figures import (
    breakdown,
    compared,
    flame,
    idle,
    kernels,
    memory,
    overlaps,
    ranks,
    roofline,
    steps,
    timeline,
    way,
)
from traceopt.reports.figures.figure import FigureDict
from traceopt.reports.figures.palette import with_light_colors
from traceopt.reports.words.display import for_display
from traceopt.reports.words.safe_text import cleaned
from traceopt.result.comparison import Comparison
from traceopt.result.document import Result

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


class Figures:
    """The figures of one result. Each is a new Plotly figure, which you can change."""

    def __init__(self, result: Result) -> None:
        self._document = for_display(result)

    @property
    def breakdown(self) -> Figure:
        """The typical step in its parts, now and after the plan."""
        return _figure(breakdown.draw(self._document))

    @property
    def steps(self) -> Figure:
        """Every recorded step in its parts, with the unusual ones marked."""
        return _figure(steps.draw(self._document))

    @property
    def run(self) -> Figure:
        """The step times of the whole run, recorded or not."""
        return _figure(steps.draw_run(self._document))

    @property
    def run_memory(self) -> Figure:
        """The memory of the GPU and of the process over the whole run."""
        return _figure(memory.draw_run(self._document))

    @property
    def run_ranks(self) -> Figure:
        """How much longer the steps of each rank take than the others', over the whole run."""
        return _figure(ranks.draw_run(self._document))

    @property
    def ranks(self) -> Figure:
        """The step of every rank in its parts; of more than 32 ranks, how far each part is from the median rank."""
        return _figure(ranks.draw(self._document))

    @property
    def overlaps(self) -> Figure:
        """What runs while each process group communicates, as a matrix."""
        return _figure(overlaps.draw(self._document))

    @property
    def idle(self) -> Figure:
        """When the GPU was idle in the step shown, by cause."""
        return _figure(idle.draw(self._document))

    @property
    def kernels(self) -> Figure:
        """GPU work by kind and name, as a treemap."""
        return _figure(kernels.draw(self._document))

    @property
    def roofline(self) -> Figure:
        """Matmuls, convolutions and attention by arithmetic intensity and rate, below the device's peaks."""
        return _figure(roofline.draw(self._document))

    @property
    def memory(self) -> Figure:
        """Device memory over the step shown."""
        return _figure(memory.draw(self._document))

    @property
    def flame(self) -> Figure:
        """The call tree of the main thread in the step shown, as an icicle."""
        return _figure(flame.draw(self._document))

    @property
    def timeline(self) -> Figure:
        """The step shown as lanes of threads and streams, with the longest spans of each."""
        return _figure(timeline.draw(self._document))

    @property
    def way(self) -> Figure:
        """The step after each change that `traceopt try` or `traceopt tune` kept."""
        return _figure(way.draw(self._document))


class ComparisonFigures:
    """The figures of one comparison, as those of a result."""

    def __init__(self, comparison: Comparison) -> None:
        self._document = cleaned(comparison)

    @property
    def parts(self) -> Figure:
        """The parts of the step, a bar for each side."""
        return _figure(compared.draw_parts(self._document))

    @property
    def kernels(self) -> Figure:
        """How much longer or shorter the kernels take that changed most."""
        return _figure(compared.draw_kernels(self._document))

    @property
    def steps(self) -> Figure:
        """The steps of every run."""
        return _figure(compared.draw_steps(self._document))


def _figure(drawn: FigureDict) -> Figure:
    from plotly.graph_objects import Figure

    return Figure(with_light_colors(drawn))
