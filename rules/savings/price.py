"""What stands behind a saving: the changes that a fix makes to the replayed graph, and what was measured of it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from traceopt.analyzer.replay.changes import Change
from traceopt.result.finding import Finding, Saving


class Price(Struct, frozen=True):
    """A saving and where it comes from.

    `changes` are what the fix is expected to change in a replay, so that fixes can be replayed together; `best` is what
    it changes if it does well. `bounds_ns`: what was measured of it, ns a step: low, expected, at most.
    """

    saving: Saving
    changes: tuple[Change, ...]
    best: tuple[Change, ...]
    bounds_ns: tuple[float, float, float]


class Priced(Struct, frozen=True):
    """A finding while rules run, with its price; the price is None where nothing was replayed.

    The result document holds the finding alone.
    """

    finding: Finding
    price: Price | None = None

    @property
    def changes(self) -> tuple[Change, ...]:
        """What the fix changes in a replay; empty where that is not known."""
        return self.price.changes if self.price is not None else ()

    @property
    def best(self) -> tuple[Change, ...]:
        """What the fix changes if it does well."""
        return self.price.best if self.price is not None else ()


def independent(found: Iterable[Priced]) -> list[Priced]:
    """Findings with a saving; of those that share a cause only the first."""
    chosen: list[Priced] = []
    for one in found:
        finding = one.finding
        alike = any(
            finding.code in other.finding.shares_cause_with or other.finding.code in finding.shares_cause_with
            for other in chosen
        )
        if finding.saving is not None and not alike:
            chosen.append(one)
    return chosen
