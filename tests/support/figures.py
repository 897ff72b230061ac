"""What Plotly would take for markup in a figure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_MARKUP = re.compile(r"[<>$]|&(?!amp;|lt;|gt;|#36;)")
_TEMPLATE = "hovertemplate"  # ours, with no name in it


def markup_in(figure: Any) -> list[str]:
    """The texts of a figure with HTML other than line breaks, or with formulas."""
    texts = _strings(figure.to_plotly_json(), "")
    return [text for key, text in texts if key != _TEMPLATE and _MARKUP.search(text.replace("<br>", ""))]


def _strings(part: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(part, str):
        yield key, part
    elif isinstance(part, dict):
        for name, value in part.items():
            yield from _strings(value, name)
    elif isinstance(part, (list, tuple)):
        for value in part:
            yield from _strings(value, key)
