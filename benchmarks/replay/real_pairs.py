"""Real traces before and after a fix: what is predicted from the first alone, and what the fix saved."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from fixtures.real_traces import TRACES
from traceopt.api import analyze
from traceopt.errors import InputError
from traceopt.what_if import what_if

EXPECTED = TRACES / "public" / "expected.json"


class Pair(Struct, frozen=True):
    """Savings of a step in ms. `low` and `high` are what the findings of the fix promise; None: no prediction."""

    name: str
    fix: str
    measured: float
    predicted: float | None
    low: float | None
    high: float | None
    trusted: bool

    @property
    def error(self) -> float | None:
        """The error of the prediction as a share of the measured saving."""
        return None if self.predicted is None else self.predicted / self.measured - 1

    @property
    def covered(self) -> bool:
        """Whether the measured saving is between low and high."""
        return self.low is not None and self.high is not None and self.low <= self.measured <= self.high


def real_pairs() -> Iterator[Pair]:
    if not EXPECTED.is_file():
        return
    for pair in json.loads(EXPECTED.read_text(encoding="utf-8"))["pairs"]:
        path = (EXPECTED.parent / pair["before"]).resolve()
        if path.is_file():
            yield _pair(path, pair["fix"], pair["measured_us"] / 1e3)


def _pair(path: Path, fix: str, measured: float) -> Pair:
    name = f"{path.parent.name}/{path.name}".removesuffix(".gz").removesuffix(".json").removesuffix(".pt.trace")
    savings = [finding.saving for finding in analyze(str(path), select=[fix]).findings if finding.saving is not None]
    low, high = (sum(getattr(saving, bound) for saving in savings) / 1e3 for bound in ("low_us", "high_us"))
    try:
        document = what_if(str(path), [fix])
    except InputError:  # the rule finds nothing
        return Pair(name, fix, measured, None, None, None, False)
    return Pair(name, fix, measured, document.saving_us / 1e3, low, high, document.trusted)
