"""How much work a fix is, and what can go wrong with it: the kinds that the plan weighs, each with its label."""

from __future__ import annotations

from enum import Enum


class Effort(str, Enum):
    """What the change takes, least first. The value is the label for people; an unknown label means a few lines."""

    ONE_LINE = "One line"  # or argument, setting or variable; at most two
    ONE_LINE_TESTED = "One line, then testing"
    FEW_LINES = "A few lines"
    REFACTORING = "Some refactoring"
    DEPENDS = "Depends on the cause"
    SEARCH = "Some investigation"

    __str__ = str.__str__

    @classmethod
    def _missing_(cls, value: object) -> Effort:  # noqa: ARG003
        return cls.FEW_LINES

    @property
    def is_simple(self) -> bool:
        """Whether the fix is a line or two."""
        return self in (Effort.ONE_LINE, Effort.ONE_LINE_TESTED)

    @property
    def is_search(self) -> bool:
        """Whether the cause has yet to be found, so that the saving is only what it may be."""
        return self is Effort.SEARCH

    @property
    def is_unknown(self) -> bool:
        """Whether the fix has yet to be found."""
        return self in (Effort.DEPENDS, Effort.SEARCH)


class Risk(str, Enum):
    """What can go wrong, most harmless first. The value is the label for people; an unknown label is another risk."""

    NONE = "None known"
    MEMORY = "More memory"
    LATER = "Results arrive later"
    LATENCY = "Each request takes longer"
    ROUNDING = "Changes rounding"
    NUMERICS = "Changes numerics"
    CONVERGENCE = "May change convergence"
    CORRECTNESS = "Wrong in some cases"
    OTHER = "Other"

    __str__ = str.__str__

    @classmethod
    def _missing_(cls, value: object) -> Risk:  # noqa: ARG003
        return cls.OTHER


def risk_and_note(risk: str, note: str | None) -> tuple[Risk, str | None]:
    """The kind of a risk that a plug-in rule gives in its own words, which become the note."""
    kind = Risk(risk)
    return kind, note if kind == risk else note or risk
