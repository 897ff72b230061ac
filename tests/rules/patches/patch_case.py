"""A source and what a fix changes in it: the rule, the file, and the lines that the diff removes and adds.

In a source, `#@` at the end of a line marks the place of the finding (the mark is taken out), two marks its first and
last line; `#@name` marks the first line of the function `name`, for traces without the lines of calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent


@dataclass(frozen=True)
class Case:
    """`changes`: the lines of the diff that begin with - or +; empty where there must be no patch."""

    name: str
    code: str
    text: str
    changes: str
    example: str = ""

    def __str__(self) -> str:
        return f"{self.code}: {self.name}"


def case(name: str, code: str, text: str, changes: str = "", example: str = "") -> Case:
    return Case(name, code, dedent(text).lstrip("\n"), dedent(changes).lstrip("\n"), example)
