"""The colors of the report and of its figures, from palette.css."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

_RULE = re.compile(r":root(?P<dark>\[data-theme=dark\])? \{(?P<declarations>.*?)\}", re.DOTALL)
_COLOR = re.compile(r"--([a-z0-9-]+): ([^;]+);")
_COLOR_KEYS = ("color", "colors", "colorscale")  # how Plotly's names of colors end


@cache
def style_sheet() -> str:
    """Custom properties of :root for light and dark pages, one rule each."""
    return (Path(__file__).parent / "palette.css").read_text(encoding="utf-8").partition("*/\n")[2]


def declarations(*, dark: bool) -> str:
    """What the rule for light or dark pages declares."""
    return next(rule["declarations"] for rule in _RULE.finditer(style_sheet()) if bool(rule["dark"]) is dark)


def with_light_colors(figure: Any) -> Any:
    """A figure whose colors are values, for whoever knows no custom properties."""
    return _resolved(figure, dict(_COLOR.findall(declarations(dark=False))), is_color=False)


def _resolved(part: Any, colors: dict[str, str], *, is_color: bool) -> Any:
    """Names of a trace are never taken for colors: only strings below a key of a color are."""
    if isinstance(part, dict):
        return {
            key: _resolved(value, colors, is_color=is_color or key.endswith(_COLOR_KEYS)) for key, value in part.items()
        }
    if isinstance(part, list):
        return [_resolved(value, colors, is_color=is_color) for value in part]
    if is_color and isinstance(part, str):
        return colors.get(part.removeprefix("var(--").removesuffix(")"), part)
    return part
