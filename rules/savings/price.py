"""What a fix saves, in ns per step, and its origin: the changes to the replayed graph, and the measured bounds."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.replay.changes import Change
from traceopt.result.experiments import Comparison
from traceopt.result.finding import Finding, Saving
from traceopt.result.words.rounding import SHARE_DECIMALS, us
from traceopt.rules.savings.correction import Correction


class Price(Struct, frozen=True):
    """What a fix saves alone: at least, expected and at most, and expected as a share of the step.

    `changes`: what the fix is expected to change in a replay, so that fixes can be replayed together. `worst`, `best`:
    what it changes at worst and at best. `bounds_ns`: the measured cost, ns per step: low, expected, at most.
    `least_step_ns`: the step cannot become shorter with this fix, whatever else is fixed, because the fix itself takes
    so long in parallel. `by_replay`: a replay of the changes says what it saves. `experiments`: what to measure on the
    device for a more exact price. `correction`: what earlier trials changed of the saving, but not of what it comes
    from. `error`: no end of the range is closer to the expected saving than this part of it.
    """

    low_ns: int
    est_ns: int
    high_ns: int
    share: float
    basis: str
    bounds_ns: tuple[float, float, float]
    changes: tuple[Change, ...] = ()
    worst: tuple[Change, ...] = ()
    best: tuple[Change, ...] = ()
    least_step_ns: float = 0.0
    by_replay: bool = False
    experiments: tuple[Comparison, ...] = ()
    correction: Correction = Correction()
    error: float = 0.0

    @property
    def cost_ns(self) -> float:
        """What was measured of the cost that the fix removes."""
        return self.bounds_ns[1] if self.changes else self.est_ns

    @property
    def saving(self) -> Saving:
        """The saving as the document holds it."""
        low_us, est_us, high_us = map(us, (self.low_ns, self.est_ns, self.high_ns))
        correction = round(self.correction.factor, SHARE_DECIMALS)
        beyond = self.bounds_ns[2] < self.high_ns <= round((1 + self.error) * self.est_ns)
        error = self.error if beyond else None
        return Saving(low_us, est_us, high_us, self.share, self.basis, self.experiments, correction, error)


class Priced(Struct, frozen=True):
    """A finding while rules run, with its price; the price is None without a saving. `occasional`: the cost is not one
    of every step, so the plan begins with others.

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
