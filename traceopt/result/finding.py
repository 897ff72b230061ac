"""What a rule reports: a finding with its evidence, its place in the user's code, its fix and what the fix saves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field

if TYPE_CHECKING:
    from traceopt.analyzer.replay.changes import Change

Impact = Literal["high", "medium", "low", "info"]
Confidence = Literal["high", "medium", "low"]


class Location(Struct, frozen=True):
    """A place in the user's code (never in torch or site-packages)."""

    file: str
    line: int | None
    function: str | None = None
    last_line: int | None = None  # where it may be any line from `line` on

    def __str__(self) -> str:
        if self.line is None:
            return self.file
        return f"{self.file}:{self.line}" + (f"-{self.last_line}" if self.last_line is not None else "")


class Saving(Struct, frozen=True):
    """Time per step that the fix gives back, in microseconds, and as a share of the step (0..1).

    `basis` is one sentence: where the number comes from and what bounds it.
    """

    low_us: float
    est_us: float
    high_us: float
    share: float
    basis: str


class Price(Struct, frozen=True):
    """A fix's saving, and what it comes from: what the fix is expected to change in a replay, so that fixes can be
    replayed together, and what was measured of it (low, expected, at most; ns a step).
    """

    saving: Saving
    changes: tuple[Change, ...]
    best: tuple[Change, ...]  # what it changes if it does well
    bounds_ns: tuple[float, float, float]


class Evidence(Struct, frozen=True):
    """One measured row behind a finding. `us_per_step` and `calls_per_step` are None where they do not apply."""

    what: str
    us_per_step: float | None = None
    calls_per_step: float | None = None
    detail: str | None = None
    location: Location | None = None


class Fix(Struct, frozen=True):
    """What to change: one or two sentences, an example, and (where the user's source is at hand) a patch."""

    text: str
    code: str | None = None
    patch: str | None = None


class Finding(Struct, frozen=True):
    """One thing worth changing. Most fields repeat the rule's own metadata, so that a finding stands alone."""

    code: str
    name: str
    title: str
    impact: Impact
    confidence: Confidence
    effort: str
    risk: str
    saving: Saving | None
    why: str
    evidence: list[Evidence]
    locations: list[Location]
    fix: Fix
    shares_cause_with: list[str] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    _price: Any = None  # while rules run; the document has none

    @property
    def price(self) -> Price | None:
        """Where the saving comes from; None where nothing was replayed."""
        price: Price | None = self._price
        return price

    @property
    def changes(self) -> tuple[Change, ...]:
        """What the fix changes in a replay; empty where that is not known."""
        return self.price.changes if self.price is not None else ()

    @property
    def best(self) -> tuple[Change, ...]:
        """What the fix changes if it does well."""
        return self.price.best if self.price is not None else ()


def independent(findings: Iterable[Finding]) -> list[Finding]:
    """Findings with a saving; of those that share a cause only the first."""
    chosen: list[Finding] = []
    for finding in findings:
        alike = any(finding.code in f.shares_cause_with or f.code in finding.shares_cause_with for f in chosen)
        if finding.saving is not None and not alike:
            chosen.append(finding)
    return chosen
