"""A section of the report that comes from a file beside the trace."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Section(Struct, frozen=True):
    """A section: its anchor and name in the navigation, its template in `templates/companions/`, and what it prints."""

    anchor: str
    name: str
    template: str
    view: Any
