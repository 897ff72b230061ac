"""Errors that the user can fix, each as one line: what is wrong, in which file, and what to do."""

from __future__ import annotations

from collections.abc import Iterable


def visible(text: str) -> str:
    """`text` with readable escapes for control, bidirectional and zero-width characters and lone surrogates.

    File names, traces and plug-ins are untrusted: they must not move the cursor or start a new line.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def one_line(text: str, limit: int = 300) -> str:
    """Any text, such as a library's message, as one printable line of at most `limit` characters."""
    line = visible(" ".join(text.split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def error_text(error: BaseException) -> str:
    """Any exception, also from a plug-in, as one line: its type and message."""
    try:
        text = str(error)
    except Exception:  # even its message raises
        text = ""
    return one_line(f"{type(error).__name__}: {text}")


def suggestion(word: str, known: Iterable[str]) -> str:
    """The end of an error message about an unknown `word`: "; did you mean 'x' or 'y'?", or nothing."""
    import difflib

    spelled = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), spelled, n=3, cutoff=0.6)
    names = [repr(name) for lower, name in spelled.items() if lower in close]
    return f"; did you mean {' or '.join(names)}?" if names else ""


class TraceoptError(Exception):
    """Base of all errors that the command line prints as `traceopt: error: <message>` with exit code 2."""

    def __init__(self, message: str) -> None:
        super().__init__(visible(message))


class InputError(TraceoptError):
    """An input file that is missing, unreadable, or not a trace."""


class ConfigError(TraceoptError):
    """A setting, rule code or plug-in folder that does not exist or has the wrong type."""


class OutputError(TraceoptError):
    """A report that cannot be written."""
