"""Names of places in code, short enough for a table."""

from __future__ import annotations

from traceopt.result.finding import Location
from traceopt.result.words.message import Message
from traceopt.result.words.quantities import NOT_RECORDED

PATH_CAP = 36  # characters of a path that is given in full elsewhere


def pieces(text: str) -> list[tuple[str, bool]]:
    """A message in pieces, each with whether it is a name or a place in the code, set in a fixed-width font."""
    parts = Message(text).parts
    return [(part, False) if isinstance(part, str) else (part.text, part.kind in ("name", "place")) for part in parts]


def where(location: Location | None) -> str:
    return NOT_RECORDED if location is None else str(location)


def short_path(path: str) -> str:
    """The end of a path, cut before a folder where possible: "…/adapters/pipeline/model.py:40"."""
    if len(path) <= PATH_CAP:
        return path
    ends = (path[start:] for start, char in enumerate(path) if char == "/")
    return "…" + next((end for end in ends if len(end) < PATH_CAP), path[1 - PATH_CAP :])
