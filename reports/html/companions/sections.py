"""The sections of the report that come from files beside the trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from traceopt.result.document import Result


class Section(Struct, frozen=True):
    """A section: its anchor and name in the navigation, its template in `templates/companions/`, and what it prints."""

    anchor: str
    name: str
    template: str
    view: Any


# They take the cleaned document, and return None where it has no such section. In the order of the page.
_SECTIONS: list[Callable[[Result], Section | None]] = []


def sections(result: Result) -> list[Section]:
    """The sections that this document has."""
    made = (section(result) for section in _SECTIONS)
    return [section for section in made if section is not None]
