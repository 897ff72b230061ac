"""How large a trace may be: what keeps a small file from taking all memory or all day (docs/limits.md)."""

from __future__ import annotations

import math
import os

from traceopt.errors import ConfigError

MOST_GB = "TRACEOPT_MAX_GB"  # of text; an environment variable, so that it reaches every process that reads
DEFAULT_GB = 16.0
MOST_RATIO = 250  # text to packed bytes; real traces have 8 to 30
RATIO_FROM_BYTES = 256 << 20  # of text: what is smaller does no harm
MOST_MEMBERS = 20_000  # of a zip archive


class TooLargeError(ValueError):
    """The text goes beyond a limit. The message says which, and what to do."""


def most_text_bytes() -> int:
    """Of one trace. Raises ConfigError when the environment does not hold a number."""
    given = os.environ.get(MOST_GB)
    try:
        most_gb = DEFAULT_GB if given is None else float(given)
    except ValueError:
        most_gb = math.nan
    if not 0 < most_gb < 1e9:
        raise ConfigError(f"{MOST_GB}: expected a number of gigabytes above 0, got {given!r}")
    return round(most_gb * 1e9)


def check_size(text_bytes: int, most_bytes: int) -> None:
    """Raises TooLargeError."""
    if text_bytes > most_bytes:
        raise TooLargeError(
            f"it has more than {most_bytes / 1e9:g} GB of text; if it is a trace, set {MOST_GB} to what it needs"
        )


def check_ratio(text_bytes: int, packed_bytes: int) -> None:
    """Raises TooLargeError."""
    if text_bytes > RATIO_FROM_BYTES and text_bytes > MOST_RATIO * packed_bytes:
        raise TooLargeError(
            f"it unpacks to more than {MOST_RATIO} times its size, which no trace does; unpack it first"
        )
