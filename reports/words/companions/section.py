"""What the reports show of one kind of file beside the trace."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from traceopt.reports.words.tables import ShownTable


class CompanionSection(Struct, frozen=True):
    """Terminal and Markdown show `lines`, at most four. The page shows `sentences` and `tables`, with the template that
    has the name of the anchor.
    """

    anchor: str
    title: str  # in the navigation of the page
    known: Any  # its part of the document
    lines: list[str]
    sentences: list[str]
    tables: list[ShownTable]
