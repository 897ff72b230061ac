"""What a rule reports: a finding with its evidence, its place in the user's code, its fix and what the fix saves."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

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


HIGH_IMPACT_SHARE = 0.10
MEDIUM_IMPACT_SHARE = 0.03


def impact_of(saving: Saving | None) -> Impact:
    """High from 10 % of the step, medium from 3 %, low below, info without a saving."""
    if saving is None:
        return "info"
    if saving.share >= HIGH_IMPACT_SHARE:
        return "high"
    return "medium" if saving.share >= MEDIUM_IMPACT_SHARE else "low"
