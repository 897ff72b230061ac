"""Names of places in code and of kernels, short enough for a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import takewhile

from traceopt.analyzer.vocabulary.kernels.kernel_labels import short_name
from traceopt.result.finding import Location
from traceopt.result.words.message import Message
from traceopt.result.words.quantities import NOT_RECORDED

KERNEL_CAP = 60  # characters of a kernel that is given in full elsewhere
PATH_CAP = 36  # characters of a path that is given in full elsewhere


def pieces(text: str) -> list[tuple[str, bool]]:
    """A message in pieces, each with whether it is a name or a place in the code, set in a fixed-width font."""
    parts = Message(text).parts
    return [(part, False) if isinstance(part, str) else (part.text, part.kind in ("name", "place")) for part in parts]


def where(location: Location | None) -> str:
    return NOT_RECORDED if location is None else location.shown


def short_path(path: str) -> str:
    """The end of a path, cut before a folder where possible: "…/adapters/pipeline/model.py:40"."""
    path, function = parted(path)
    if len(path) <= PATH_CAP:
        return path + function
    ends = (path[start:] for start, char in enumerate(path) if char == "/")
    return "…" + next((end for end in ends if len(end) < PATH_CAP), path[1 - PATH_CAP :]) + function


def parted(place: str) -> tuple[str, str]:
    """A path with its line, and what `Location.shown` puts behind it: "train.py:118" and " (def main)"."""
    path, function, name = place.partition(" (def ")
    return path, function + name


def short_kernels(names: Iterable[str]) -> dict[str, str]:
    """Short names of kernels in at most KERNEL_CAP characters, by their full names."""
    full = list(dict.fromkeys(names))
    return dict(zip(full, told_apart(list(map(short_name, full)), KERNEL_CAP), strict=True))


def told_apart(names: Sequence[str], columns: int, mark: str = "…") -> list[str]:
    """Names in at most `columns` characters, cut at their end. Those that would then look the same are cut in the
    middle, so that the place where they begin to differ is shown.
    """
    alike = defaultdict(set)
    for name in names:
        alike[name[: columns - len(mark)]].add(name)
    return [_cut(name, alike[name[: columns - len(mark)]], columns, mark) for name in names]


def _cut(name: str, alike: set[str], columns: int, mark: str) -> str:
    if len(name) <= columns:
        return name
    if len(alike) == 1:
        return name[: columns - len(mark)] + mark
    start = columns // 2
    room = columns - start - len(mark)
    same = sum(1 for _ in takewhile(lambda letters: len(set(letters)) == 1, zip(*alike, strict=False)))
    rest = name[min(same, len(name) - room) :]
    return name[:start] + mark + _cut(rest, {rest}, room, mark)
