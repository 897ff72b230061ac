"""A saving with its origin: the changes that a fix makes to the replayed graph, and the measured bounds."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from traceopt.analyzer.replay.changes import Change
from traceopt.result.finding import Finding, Saving


class Price(Struct, frozen=True):
    """A saving and where it comes from.

    `changes`: what the fix is expected to change in a replay, so that fixes can be replayed together. `best`: what it
    changes at best. `bounds_ns`: the measured cost, ns per step: low, expected, at most.
    """

    saving: Saving
    changes: tuple[Change, ...]
    best: tuple[Change, ...]
    bounds_ns: tuple[float, float, float]


class Priced(Struct, frozen=True):
    """A finding while rules run, with its price; the price is None if nothing was replayed.

    The result document holds only the finding.
    """

    finding: Finding
    price: Price | None = None

    @property
    def changes(self) -> tuple[Change, ...]:
        """What the fix changes in a replay; empty if unknown."""
        return self.price.changes if self.price is not None else ()

    @property
    def best(self) -> tuple[Change, ...]:
        """What the fix changes at best."""
        return self.price.best if self.price is not None else ()


def independent(found: Iterable[Priced]) -> list[Priced]:
    """Findings with a saving; only the first of those that share a cause."""
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
