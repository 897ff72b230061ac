"""Questions to a library that a GPU or a driver may not answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def asked(function: Callable[..., Any], *arguments: Any) -> Any:
    """None for what this GPU or driver cannot say."""
    try:
        return function(*arguments)
    except Exception:
        return None
