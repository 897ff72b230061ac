"""What `traceopt.analyze()` returns: the result document, with frames, figures, HTML and a notebook summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traceopt.result.document import Result

if TYPE_CHECKING:
    from traceopt.reports.figures.figures import Figures
    from traceopt.result.frames import Frames


class Analysis(Result, frozen=True):
    """A result document that notebooks display as a summary. `frames` has its tables as pandas frames, `figures` its
    charts as Plotly figures.
    """

    @classmethod
    def of(cls, result: Result) -> Analysis:
        """The same document as an `Analysis`."""
        return cls(**{name: getattr(result, name) for name in result.__struct_fields__})

    def _repr_html_(self) -> str:
        from traceopt.reports.html.notebook import render_notebook

        return render_notebook(self)

    @property
    def frames(self) -> Frames:
        """The tables as pandas frames: `analysis.frames.kernels`."""
        from traceopt.result.frames import Frames

        return Frames(self)

    @property
    def figures(self) -> Figures:
        """Plotly figures: `analysis.figures.breakdown`."""
        from traceopt.reports.figures.figures import Figures

        return Figures(self)

    def to_html(self, *, static: bool = False) -> str:
        """The HTML report. With `static` it leaves the spans out: small, but the timeline does not zoom."""
        from traceopt.reports.html.page import render_html

        return render_html(self, static=static)
