"""Questions that a version of torch, a library or a driver may not answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def or_none(function: Callable[..., T], *arguments: object) -> T | None:
    """What the function returns, or None if it fails."""
    try:
        return function(*arguments)
    except Exception:
        return None
