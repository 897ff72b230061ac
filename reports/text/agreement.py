"""Predicted against measured gains by rule, as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.reports.words import safe_text
from traceopt.result.trial import Agreement
from traceopt.result.words.quantities import counted

HEAD = ("rule", "tried", "median error", "direction", "in the predicted range")


def render_agreement(agreements: Sequence[Agreement]) -> str:
    """Errors are in points of the step."""
    if not agreements:
        return "No fix with a prediction has been measured yet.\n"
    rows = [HEAD, *(_row(agreement) for agreement in agreements)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    total = sum(agreement.attempts for agreement in agreements)
    covered = sum(agreement.covered for agreement in agreements)
    lines.append(
        f"{counted(total, 'measurement')}; {covered} in the predicted range. Errors are in points of the step."
    )
    return safe_text.without_commands("\n".join(lines) + "\n")


def _row(one: Agreement) -> tuple[str, str, str, str, str]:
    error = one.median_error_share
    direction = "as predicted" if abs(error) < 0.0005 else "predicts too much" if error > 0 else "predicts too little"
    return (
        safe_text.clean(one.code, 20),
        str(one.attempts),
        f"{one.median_absolute_error_share * 100:.1f}",
        direction,
        f"{one.covered} of {one.attempts}",
    )
