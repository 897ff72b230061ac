"""Size limits for traces, so that a small file cannot use up all memory or run all day (docs/limits.md)."""

from __future__ import annotations

import math
import os

from traceopt.errors import ConfigError

MOST_GB = "TRACEOPT_MAX_GB"  # of text; an environment variable, so that it applies to every process that reads
DEFAULT_GB = 16.0
MOST_RATIO = 250  # of text to compressed bytes; real traces have 8 to 30
RATIO_FROM_BYTES = 256 << 20  # of text: smaller files do no harm
MOST_MEMBERS = 20_000  # of a zip archive


class TooLargeError(ValueError):
    """The text exceeds a limit. The message says which one and what to do."""


def most_text_bytes() -> int:
    """Limit for one trace. Raises ConfigError if the environment variable is not a positive number."""
    given = os.environ.get(MOST_GB)
    try:
        most_gb = DEFAULT_GB if given is None else float(given)
    except ValueError:
        most_gb = math.nan
    if not 0 < most_gb < 1e9:
        raise ConfigError(f"{MOST_GB}: expected a number of gigabytes above 0, got {given!r}")
    return round(most_gb * 1e9)


def check_size(text_bytes: int, most_bytes: int) -> None:
    """Raises TooLargeError if the text is larger than `most_bytes`."""
    if text_bytes > most_bytes:
        raise TooLargeError(
            f"it has more than {most_bytes / 1e9:g} GB of text; to read it anyway, set {MOST_GB} to a higher limit"
        )


def check_ratio(text_bytes: int, packed_bytes: int) -> None:
    """Raises TooLargeError if the text is too large for its compressed size."""
    if text_bytes > RATIO_FROM_BYTES and text_bytes > MOST_RATIO * packed_bytes:
        raise TooLargeError(
            f"it expands to more than {MOST_RATIO} times its size, which no trace does; if you trust it, unpack it"
        )
