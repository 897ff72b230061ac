"""Text for a terminal of a given width, with or without color, in Unicode or ASCII."""

from __future__ import annotations

import textwrap
import unicodedata

import click
from msgspec import Struct

from traceopt.result.words import quantities

MIN_WIDTH, MAX_WIDTH = 60, 110

_ASCII = str.maketrans(
    {
        "≈": "~", "→": "->", "–": "-", "—": "-", "·": "-", "×": "x", "−": "-", "±": "+-",
        "µ": "u", "…": "...", "█": "#", "’": "'", "‘": "'", "“": '"', "”": '"',
        quantities.NO_BREAK_SPACE: " ", "\u202f": " ",
    }
)  # fmt: skip


class Terminal(Struct, frozen=True):
    """The terminal: its columns, whether it has color, and whether its encoding has more than ASCII."""

    width: int
    color: bool
    unicode: bool

    def plain(self, value: str) -> str:
        value = value.replace(quantities.NO_BREAK_SPACE, " ")
        if self.unicode:
            return value
        return value.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii")

    def style(self, value: str, *, fg: str | None = None, bold: bool = False, dim: bool = False) -> str:
        if not self.color:
            return value
        return click.style(value, fg=fg, bold=bold or None, dim=dim or None)

    @property
    def mark(self) -> str:
        """The mark for text that was cut off."""
        return "…" if self.unicode else "..."

    def fit(self, value: str, columns: int) -> str:
        """`value` in at most `columns` columns."""
        value = self.plain(value)
        if width_of(value) <= columns:
            return value
        room = columns - len(self.mark)
        while width_of(value) > room and value:
            value = value[:-1]
        return value + self.mark

    def fit_path(self, value: str, columns: int) -> str:
        """The end of a path, which has the file's name. Whole folders are cut first, then letters."""
        value = self.plain(value)
        if width_of(value) <= columns:
            return value
        room = columns - len(self.mark)
        folders = (value[slash:] for slash, char in enumerate(value) if char == "/")
        shorter = next((end for end in folders if width_of(end) <= room), value)
        while width_of(shorter) > room:
            shorter = shorter[1:]
        return self.mark + shorter

    def lines(self, value: str, columns: int, count: int) -> list[str]:
        """`value` broken into at most `count` lines; the rest is cut off."""
        value = self._with_units(value)
        first = textwrap.wrap(value, columns, break_on_hyphens=False, break_long_words=False)[:1]
        if not first or count == 1 or width_of(first[0]) > columns:
            return [self.fit(value, columns)]
        rest = value[len(first[0]) :].strip()
        return [self.plain(first[0]), *(self.lines(rest, columns, count - 1) if rest else [])]

    def wrap(self, value: str, *, indent: str = "", first: str = "") -> list[str]:
        """`value` in lines of the terminal's width. A number and its unit stay on one line."""
        lines = textwrap.wrap(
            self._with_units(value), self.width, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False
        )
        return [self.plain(line) for line in lines]

    def _with_units(self, value: str) -> str:
        """`value` as the terminal can show it, still with the no-break spaces, at which textwrap does not break."""
        return quantities.NO_BREAK_SPACE.join(map(self.plain, value.split(quantities.NO_BREAK_SPACE)))


def width_of(value: str) -> int:
    """Columns that `value` takes: East Asian wide characters take two, combining marks none."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in value
    )


def pad(value: str, columns: int) -> str:
    return value + " " * (columns - width_of(value))
