"""A saving with its origin: the changes that a fix makes to the replayed graph, and the measured bounds."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.replay.changes import Change
from traceopt.result.finding import Finding, Saving


class Price(Struct, frozen=True):
    """A saving and where it comes from.

    `changes`: what the fix is expected to change in a replay, so that fixes can be replayed together. `worst`, `best`:
    what it changes at worst and at best. `bounds_ns`: the measured cost, ns per step: low, expected, at most.
    `least_step_ns`: the step cannot become shorter with this fix, whatever else is fixed, because the fix itself takes
    so long in parallel.
    """

    saving: Saving
    changes: tuple[Change, ...]
    worst: tuple[Change, ...]
    best: tuple[Change, ...]
    bounds_ns: tuple[float, float, float]
    least_step_ns: float = 0.0


class Priced(Struct, frozen=True):
    """A finding while rules run, with its price; the price is None if nothing was replayed. `occasional`: the cost is
    not one of every step, so the plan begins with others.

    The result document holds only the finding.
    """

    finding: Finding
    price: Price | None = None
    occasional: bool = False

    def without_saving(self) -> Priced:
        """The finding, if its fix saves nothing that is known."""
        return Priced(replace(self.finding, saving=None, impact="info"))

    @property
    def changes(self) -> tuple[Change, ...]:
        """What the fix changes in a replay; empty if unknown."""
        return self.price.changes if self.price is not None else ()

    @property
    def best(self) -> tuple[Change, ...]:
        """What the fix changes at best."""
        return self.price.best if self.price is not None else ()

    def shares_cause_with(self, other: Priced) -> bool:
        """Whether either finding names the other as one with the same cause."""
        mine, theirs = self.finding, other.finding
        return mine.code in theirs.shares_cause_with or theirs.code in mine.shares_cause_with
