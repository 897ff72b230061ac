"""What `traceopt.analyze()` returns: the result document, and the ways to look at it from Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traceopt.result.document import Result

if TYPE_CHECKING:
    from traceopt.result.frames import Frames


class Analysis(Result, frozen=True):
    """A result document that notebooks show as a summary; `frames` has its tables for pandas."""

    @classmethod
    def of(cls, result: Result) -> Analysis:
        """The same document, with the ways to look at it."""
        return cls(**{name: getattr(result, name) for name in result.__struct_fields__})

    def _repr_html_(self) -> str:
        from traceopt.reports.html.notebook import render_notebook

        return render_notebook(self)

    @property
    def frames(self) -> Frames:
        """The tables as pandas frames: `analysis.frames.kernels`."""
        from traceopt.result.frames import Frames

        return Frames(self)

    def to_html(self, *, static: bool = False) -> str:
        """The HTML report. `static` leaves Plotly out: a tenth of the size, no zoom."""
        from traceopt.reports.html.page import render_html

        return render_html(self, static=static)
