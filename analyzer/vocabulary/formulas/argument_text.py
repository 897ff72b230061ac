"""The recorded arguments of an operator as one line: "[128, 3, 224, 224] float, [64, 3, 7, 7] float, Int"."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import Any

import msgspec

MOST_LETTERS = 280  # a report shows up to 300 letters of a text
MOST_TENSORS = 4  # of a list of tensors


def argument_text(dims: str, types: str) -> str:
    """Shapes and types of all arguments. `dims` and `types` are the profiler's JSON, or "". A text that would be too
    long says how many arguments it leaves out. "" if nothing is known.
    """
    shapes, kinds = _list(dims), _list(types)
    arguments = [
        " ".join(filter(None, (_shape(shape), kind if isinstance(kind, str) else "")))
        for shape, kind in zip_longest(shapes, kinds)
    ]
    while arguments and not arguments[-1]:
        arguments.pop()
    return _joined([argument or "–" for argument in arguments], lambda text: len(text) <= MOST_LETTERS)


def _shape(shape: Any) -> str:
    """ "[128, 3]"; a list of tensors has one for each: "([128, 3], [64])"; "" for what is no tensor."""
    if not isinstance(shape, list) or not shape:
        return ""
    if any(isinstance(size, list) for size in shape):
        tensors = [f"[{', '.join(map(str, size))}]" if isinstance(size, list) else str(size) for size in shape]
        return f"({_joined(tensors, lambda text: text.count('[') <= MOST_TENSORS)})"
    return f"[{', '.join(map(str, shape))}]"


def _joined(parts: list[str], fits: Callable[[str], bool]) -> str:
    """As many of the parts as fit, at least one, and the number of the others."""
    count = next((n for n in range(len(parts), 1, -1) if fits(", ".join(parts[:n]))), 1)
    rest = [f"and {len(parts) - count} more"] if count < len(parts) else []
    return ", ".join([*parts[:count], *rest])


def _list(text: str) -> Iterable[Any]:
    try:
        found = msgspec.json.decode(text) if text else []
    except msgspec.DecodeError:
        return []
    return found if isinstance(found, list) else []
