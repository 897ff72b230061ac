"""Errors that are the user's to fix, each one line: what is wrong, in which file, what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable

# C0 and C1 controls, line separators, zero-width and bidirectional marks, lone surrogates (odd file names).
_INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def visible(text: str) -> str:
    """`text` with every control character as a readable escape; file names and traces are untrusted."""
    return _INVISIBLE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def one_line(text: str, limit: int = 300) -> str:
    """Any text (a library's message, say) as one printable line of at most `limit` characters."""
    line = visible(" ".join(text.split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def suggestion(word: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown `word`: "; did you mean 'x' or 'y'?", or nothing."""
    import difflib

    spelled = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), spelled, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(repr(spelled[name]) for name in close)}?" if close else ""


class TraceoptError(Exception):
    """Base of all errors that the command line prints as `traceopt: error: <message>` with exit code 2."""

    def __init__(self, message: str) -> None:
        super().__init__(visible(message))


class InputError(TraceoptError):
    """A trace that is missing, unreadable, or not a trace."""


class ConfigError(TraceoptError):
    """A setting, a rule code or a plug-in folder that does not exist or has the wrong type."""


class OutputError(TraceoptError):
    """A report that cannot be written."""
