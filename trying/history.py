"""`tried.jsonl`: every prediction with the gain that was measured, one line each, and how well they agree."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

from traceopt.analyzer.companions.trials import attempts_in
from traceopt.errors import InputError, OutputError
from traceopt.result.encoding.serialization import to_json
from traceopt.result.trial import Agreement, Attempt, Machine, TriedChange

MOST_BYTES = 256 << 20


def attempts_of(
    tried: Iterable[TriedChange], *, time: str, script: str, device: str | None, machine: Machine | None = None
) -> list[Attempt]:
    """The changes that have both a prediction and a measurement."""
    found = []
    for row in tried:
        numbers = (
            row.predicted_us, row.predicted_low_us, row.predicted_high_us,
            row.before_us, row.gain_us, row.low_share, row.high_share,
        )  # fmt: skip
        if any(number is None for number in numbers):
            continue
        predicted, low, high, before, gain, low_share, high_share = (number or 0.0 for number in numbers)
        found.append(
            Attempt(
                time,
                script,
                row.name.partition(" ")[0],
                row.via,
                row.verdict,
                predicted,
                low,
                high,
                before,
                round(gain, 3),
                round(low_share * before, 3),
                round(high_share * before, 3),
                device,
                machine,
                row.correction,
            )
        )
    return found


def append(path: Path, attempts: Sequence[Attempt]) -> None:
    """Adds lines to the file, each in one write. Raises OutputError."""
    if not attempts:
        return
    try:
        with path.open("ab", buffering=0) as file:
            for attempt in attempts:
                file.write(to_json(attempt) + b"\n")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def read(path: Path) -> tuple[list[Attempt], int]:
    """The attempts in a file, and the number of lines that cannot be read. Raises InputError."""
    try:
        if os.path.getsize(path) > MOST_BYTES:
            raise InputError(f"cannot read {path}: it is larger than {MOST_BYTES >> 20} MiB")
        return attempts_in(path.read_bytes())
    except FileNotFoundError as error:
        raise InputError(f"no such file: {path}; traceopt try writes it") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def agreements(attempts: Sequence[Attempt]) -> list[Agreement]:
    """One for each rule, by code."""
    by_code: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        if attempt.before_us > 0:
            by_code.setdefault(attempt.code, []).append(attempt)
    return [_agreement(code, ones) for code, ones in sorted(by_code.items())]


def _agreement(code: str, attempts: Sequence[Attempt]) -> Agreement:
    errors = [(attempt.predicted_us - attempt.gain_us) / attempt.before_us for attempt in attempts]
    covered = sum(
        attempt.predicted_low_us <= attempt.gain_high_us and attempt.gain_low_us <= attempt.predicted_high_us
        for attempt in attempts
    )
    return Agreement(code, len(attempts), round(median(errors), 6), round(median(map(abs, errors)), 6), covered)
