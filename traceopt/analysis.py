"""What `traceopt.analyze()` and `traceopt.compare()` return: documents with figures, HTML and notebook summaries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traceopt.result.comparison import Comparison
from traceopt.result.document import Result

if TYPE_CHECKING:
    from traceopt.reports.figures.figures import ComparisonFigures, Figures
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


class ComparedRuns(Comparison, frozen=True):
    """A comparison that notebooks display as a summary. `figures` has its charts as Plotly figures."""

    @classmethod
    def of(cls, comparison: Comparison) -> ComparedRuns:
        """The same document as `ComparedRuns`."""
        return cls(**{name: getattr(comparison, name) for name in comparison.__struct_fields__})

    def __repr__(self) -> str:
        """Short: a notebook keeps it beside each summary."""
        return f"<Comparison {self.verdict!r}>"

    def _repr_html_(self) -> str:
        from traceopt.reports.html.notebook import render_comparison_notebook

        return render_comparison_notebook(self)

    @property
    def figures(self) -> ComparisonFigures:
        """Plotly figures: `comparison.figures.parts`."""
        from traceopt.reports.figures.figures import ComparisonFigures

        return ComparisonFigures(self)

    def to_html(self) -> str:
        """The comparison page."""
        from traceopt.reports.html.comparison_page import render_comparison_html

        return render_comparison_html(self)
