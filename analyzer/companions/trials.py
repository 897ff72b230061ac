"""Reads what `traceopt try` and `traceopt tune` measured of earlier predictions: their `tried.jsonl`."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import DecodeError
from msgspec.json import decode

from traceopt.analyzer.reading.sources import TraceSource
from traceopt.errors import InputError
from traceopt.result.trial import Attempt
from traceopt.result.words.quantities import counted

MOST_BYTES = 16 * 2**20


def read_trials(files: Sequence[TraceSource], warnings: list[str]) -> list[Attempt]:
    """In the order in which they were made. Raises InputError if a file cannot be read."""
    found: list[Attempt] = []
    for file in files:
        with file.open() as stream:
            data = stream.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise InputError(f"{file.label} is larger than {MOST_BYTES >> 20} MiB, so it corrects no prediction")
        attempts, odd = attempts_in(data)
        found += attempts
        if odd:
            warnings.append(f"{file.label}: {counted(odd, 'line')} cannot be read")
    return found


def attempts_in(data: bytes) -> tuple[list[Attempt], int]:
    """The attempts, one a line, and the number of lines that cannot be read."""
    attempts, odd = [], 0
    for line in filter(None, data.splitlines()):
        try:
            attempts.append(decode(line, type=Attempt))
        except (DecodeError, RecursionError):  # cut off by a full disk
            odd += 1
    return attempts, odd
