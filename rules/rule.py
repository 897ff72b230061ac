"""What a rule is: static metadata, typed thresholds, and a pure check of the facts."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import Field, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

from traceopt.rules.finding import Confidence, Evidence, Finding, Fix, Impact, Location, Price, Saving

if TYPE_CHECKING:
    from traceopt.analyzer.facts import Facts

HIGH_IMPACT_SHARE = 0.10
MEDIUM_IMPACT_SHARE = 0.03


def threshold(default: Any, text: str) -> Any:
    """A rule's setting: a dataclass field with its default and one line saying what it bounds."""
    return field(default=default, metadata={"text": text})


def impact_of(saving: Saving | None) -> Impact:
    """High from 10 % of the step, medium from 3 %, low below, info without a saving."""
    if saving is None:
        return "info"
    if saving.share >= HIGH_IMPACT_SHARE:
        return "high"
    return "medium" if saving.share >= MEDIUM_IMPACT_SHARE else "low"


@dataclass(frozen=True)
class Rule:
    """Base of every rule. A rule is a frozen dataclass: its class variables name it, its fields are its thresholds.

    The docstring of a rule is its page: what it measures, why that costs, how to fix it (with code), when the
    rule is wrong, and sources.
    """

    code: ClassVar[str]
    name: ClassVar[str]  # kebab-case, a noun of the problem; stable once released
    title: ClassVar[str]  # imperative: the change to make
    family: ClassVar[str]
    effort: ClassVar[str] = "A few lines"
    risk: ClassVar[str] = "None known"
    confidence: ClassVar[Confidence] = "high"
    requires: ClassVar[tuple[str, ...]] = ()  # names that Facts.lacks() understands

    def applies(self, facts: Facts) -> str | None:  # noqa: ARG002
        """Why this rule has nothing to look at in this trace ("No convolutions."), or None when it does."""
        return None

    def missing(self, facts: Facts) -> str | None:
        """What this trace lacks for the rule and how to record it, or None when it can be checked."""
        return next((lack for requirement in self.requires if (lack := facts.lacks(requirement))), None)

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yields what is worth changing; reads facts, never events."""
        raise NotImplementedError

    def passed(self, facts: Facts) -> str:  # noqa: ARG002
        """One sentence for the reader when check() yields nothing; numbers make it better."""
        return "No sign of it in this trace."

    @classmethod
    def page(cls) -> str:
        """The rule's documentation, as Markdown."""
        return inspect.getdoc(cls) or ""

    @classmethod
    def thresholds(cls) -> tuple[Field[Any], ...]:
        """The settings a user may change, with defaults, types and their one-line texts."""
        return fields(cls)

    def finding(
        self,
        *,
        why: str,
        fix: Fix,
        saving: Saving | Price | None,
        evidence: list[Evidence],
        locations: list[Location] | None = None,
        title: str | None = None,
        confidence: Confidence | None = None,
        shares_cause_with: list[str] | None = None,
    ) -> Finding:
        """A finding that carries this rule's metadata; the impact follows from the saving."""
        price = saving if isinstance(saving, Price) else None
        saving = saving.saving if isinstance(saving, Price) else saving
        return Finding(
            code=self.code,
            name=self.name,
            title=title or self.title,
            impact=impact_of(saving),
            confidence=confidence or self.confidence,
            effort=self.effort,
            risk=self.risk,
            saving=saving,
            why=why,
            evidence=evidence,
            locations=list(dict.fromkeys(locations or [])),
            fix=fix,
            shares_cause_with=shares_cause_with or [],
            _price=price,
        )
