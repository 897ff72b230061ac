"""Compares the losses of both sides: does the script still train the same?"""

from __future__ import annotations

import math
from collections.abc import Sequence

from traceopt.result.trial import ComparedLosses

CLOSE_SHARES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)  # what "equal within" can say
USUAL_FACTOR = 3.0  # times the difference between runs without the change: no drift
MOST_SHOWN = 500  # losses kept in the document


def compare_losses(before: Sequence[Sequence[float]], after: Sequence[Sequence[float]]) -> ComparedLosses:
    """Each run is the loss of every step from step 0. Only the steps that all runs have are compared.

    A loss has drifted if it differs by more than 1 % from the same step without the change, and by more than
    three times as much as the runs without the change differ from each other.
    """
    runs = [run for run in (*before, *after) if run]
    if not any(before) or not any(after) or len(runs) < len(before) + len(after):
        return ComparedLosses("unknown")
    count = min(map(len, runs))
    reference, changed = before[0][:count], after[0][:count]
    differences = [
        max(_difference(a, b) for a in (run[step] for run in before) for b in (run[step] for run in after))
        for step in range(count)
    ]
    usual = max((_difference(reference[step], run[step]) for run in before[1:] for step in range(count)), default=None)
    shown = (_shown(reference), _shown(changed))
    if not any(differences):
        return ComparedLosses("identical", 0.0, usual, None, *shown)
    allowed = max(CLOSE_SHARES[-1], USUAL_FACTOR * (usual or 0.0))
    drifted = next((step for step, share in enumerate(differences) if share > allowed), None)
    if drifted is not None:
        return ComparedLosses("drifts", None, usual, drifted, *shown)
    largest = max(differences)
    within = next((share for share in CLOSE_SHARES if largest <= share), largest)
    return ComparedLosses("close", within, usual, None, *shown)


def _shown(losses: Sequence[float]) -> list[float | None]:
    """For the document, which is JSON: without numbers that are not finite."""
    return [loss if math.isfinite(loss) else None for loss in losses[:MOST_SHOWN]]


def _difference(before: float, after: float) -> float:
    """As a part of the loss; 0 for the same number, also if it is not finite."""
    if before == after or (math.isnan(before) and math.isnan(after)):
        return 0.0
    if not (math.isfinite(before) and math.isfinite(after)):
        return math.inf
    return abs(after - before) / max(abs(before), abs(after))
