"""Names of places in code, short enough for a table."""

from __future__ import annotations

from traceopt.result.finding import Location
from traceopt.result.quantities import NOT_RECORDED

PATH_CAP = 36  # characters of a path that is given in full elsewhere


def is_name(text: str) -> bool:
    """Whether `text` names code or an event, and so is set in a fixed-width font; a phrase is not."""
    return " " not in text or any(mark in text for mark in ("::", "(", "<", "_", ".py:"))


def where(location: Location | None) -> str:
    return NOT_RECORDED if location is None else str(location)


def short_path(path: str) -> str:
    """The end of a path, cut before a folder where possible: "…/adapters/pipeline/model.py:40"."""
    if len(path) <= PATH_CAP:
        return path
    ends = (path[start:] for start, char in enumerate(path) if char == "/")
    return "…" + next((end for end in ends if len(end) < PATH_CAP), path[1 - PATH_CAP :])
