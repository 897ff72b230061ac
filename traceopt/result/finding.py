"""What a rule reports: a finding with its evidence, its place in the user's code, its fix and the saving."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal

from msgspec import Struct, field
from msgspec.structs import force_setattr

from traceopt.result.edits import Call, Edit, SetArguments, SetAttribute, SetVariable, example_of, settings_of
from traceopt.result.experiments import Comparison
from traceopt.result.field_notes import note
from traceopt.result.words.effort_and_risk import Effort, Risk
from traceopt.result.words.message import Spoken
from traceopt.result.words.rounding import shown_percent

Impact = Literal["high", "medium", "low", "info"]
Confidence = Literal["high", "medium", "low"]
IMPACTS: tuple[Impact, ...] = ("high", "medium", "low", "info")


class Location(Struct, frozen=True):
    """A place in the user's code, or in a model that a library ships (never in torch or in Python's own modules)."""

    file: Annotated[str, note("file of the user's or a model's code")]
    line: Annotated[int | None, note("line, from 1")]
    function: Annotated[str | None, note("function around it")] = None
    last_line: Annotated[int | None, note("set where it may be any line from `line` to this one")] = None
    begins: Annotated[bool, note("`line` is where the function begins: the line in it is not known")] = False

    def __str__(self) -> str:
        if self.line is None:
            return self.file
        return f"{self.file}:{self.line}" + (f"-{self.last_line}" if self.last_line is not None else "")

    @property
    def shown(self) -> str:
        """ "train.py:31", and "train.py:118 (def main)" if only the function is known."""
        return f"{self} (def {self.function})" if self.begins else str(self)


class Saving(Spoken, frozen=True):
    """Time per step that a fix saves."""

    messages: ClassVar = ("basis",)

    low_us: Annotated[float, note("saving per step, at least", "us")]
    est_us: Annotated[float, note("saving per step, expected", "us")]
    high_us: Annotated[float, note("saving per step, at most", "us")]
    share: Annotated[float, note("expected saving as a part of the step", "share")]
    basis: Annotated[str, note("where the number comes from and what bounds it")]
    experiments: Annotated[
        tuple[Comparison, ...], note("what `traceopt measure` runs on the device for a more exact saving")
    ] = ()
    correction: Annotated[float, note("what earlier trials on this machine multiplied the saving by")] = 1.0
    error_share: Annotated[
        float | None,
        note(
            "earlier predictions were off by up to this part of the expected saving, so the range goes beyond the "
            "measured cost; null: it does not",
            "share",
        ),
    ] = None


class Evidence(Spoken, frozen=True):
    """One measured row behind a finding."""

    messages: ClassVar = ("what", "detail")

    what: Annotated[str, note("what was measured")]
    us_per_step: Annotated[float | None, note("time per step; null where it does not apply", "us")] = None
    calls_per_step: Annotated[float | None, note("calls; null where they do not apply", "per step")] = None
    detail: Annotated[str | None, note("more about the row")] = None
    location: Annotated[Location | None, note("place in the user's or a model's code")] = None
    inside: Annotated[bool, note("a part of the last row above that is not inside another")] = False


class Fix(Spoken, frozen=True):
    """What to change. The code is for people: nothing reads it back, what a program needs is in the edits."""

    messages: ClassVar = ("text",)

    text: Annotated[str, note("the change in one or two sentences")]
    code: Annotated[str | None, note("an example")] = None  # of the edits, unless the rule gives a longer one
    patch: Annotated[str | None, note("unified diff of the user's file, where its source is at hand")] = None
    edits: Annotated[list[Edit], note("the change as values; empty if no kind of edit is it")] = field(
        default_factory=list
    )
    in_framework: Annotated[
        SetArguments | None,
        note("the same change as arguments of the training framework that makes the calls; null if it makes none"),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.code is None and self.edits:
            force_setattr(self, "code", self.in_framework.code if self.in_framework else example_of(self.edits))

    @property
    def settings(self) -> dict[str, str]:
        """What the edits set, by full name."""
        return settings_of(self.edits)

    @property
    def is_setting(self) -> bool:
        """Whether it holds for the whole process, so that no line where time goes is the place to change."""
        return bool(self.edits) and all(isinstance(edit, (Call, SetAttribute, SetVariable)) for edit in self.edits)


class Finding(Spoken, frozen=True):
    """One thing worth changing. Most fields repeat the rule's own metadata, so that a finding is self-contained."""

    messages: ClassVar = ("title", "risk_note", "why")

    code: Annotated[str, note("code of the rule")]
    name: Annotated[str, note("name of the rule")]
    title: Annotated[str, note("what to change")]
    impact: Annotated[
        Impact,
        note(
            "high from 10 % of the step, medium from 3 %, low below, in the plan if it is there; info without a "
            "saving, but high if the run ends by it"
        ),
    ]
    confidence: Annotated[
        Confidence,
        note(
            "how sure it is that the fix saves time; high: measured idle time with a known cause; medium: modeled, or "
            "the range begins at 0; low: inferred"
        ),
    ]
    effort: Annotated[Effort, note("what the change takes")]
    risk: Annotated[Risk, note("what can go wrong")]
    saving: Annotated[Saving | None, note("time that the fix saves alone; null without an honest number")]
    why: Annotated[str, note("the measured reason")]
    evidence: Annotated[list[Evidence], note("measured rows behind it")]
    locations: Annotated[
        list[Location],
        note("places of the work, most expensive first; one in a library's model is followed by the user's call of it"),
    ]
    fix: Annotated[Fix, note("what to change")]
    shares_cause_with: Annotated[list[str], note("codes of rules that find the same cause")] = field(
        default_factory=list
    )
    ranks: Annotated[list[int], note("ranks that have it")] = field(default_factory=list)
    family: Annotated[str, note("family of the rule")] = ""
    aspect: Annotated[str | None, note("which of the things that the rule looks at; null where it is one")] = None
    after_plan_us: Annotated[
        float | None, note("saving per step after the fixes of the plan; null if it is one of them or unknown", "us")
    ] = None
    instead_lost_us: Annotated[
        float | None,
        note("how much less the plan saves with this fix instead of its own of the same cause; null without any", "us"),
    ] = None
    id: Annotated[
        str,
        note('names it in this document, and in other recordings of the code: rule, file, function; "DL001-3f9a1c"'),
    ] = ""
    risk_note: Annotated[str | None, note("the risk in the rule's own words; null if `risk` says it all")] = None

    @property
    def risk_words(self) -> str:
        """What can go wrong, for people."""
        return self.risk_note or str(self.risk)


def sure_of(confidence: Confidence, low: float) -> Confidence:
    """The confidence in a fix that saves at least `low`: nothing is sure to save time if it may save none."""
    return "medium" if confidence == "high" and low <= 0 else confidence


HIGH_IMPACT_PERCENT = 10
MEDIUM_IMPACT_PERCENT = 3


def impact_of_share(share: float) -> Impact:
    """High from 10 % of the step, medium from 3 %, low below, by the digits that reports print."""
    percent = shown_percent(share)
    if percent >= HIGH_IMPACT_PERCENT:
        return "high"
    return "medium" if percent >= MEDIUM_IMPACT_PERCENT else "low"


_ONCE = "EF006"  # what happens before the steps


def name_among(finding: Finding, findings: Iterable[Finding]) -> str:
    """The finding's title; with its function, if another of the findings has this title."""
    same = [one for one in findings if one.title == finding.title]
    function = next((place.function for place in finding.locations), None)
    return f"{finding.title}, in {function}" if len(same) > 1 and function else finding.title


def value_order(finding: Finding) -> tuple[int, float, int, str, str]:
    """Sort key: most valuable first. Without a saving, what names a cause comes before the question what the cause is,
    and what happens in the steps before what happens once.
    """
    saved_us = finding.saving.est_us if finding.saving else 0.0
    where = str(finding.locations[0]) if finding.locations else ""
    return IMPACTS.index(finding.impact), -saved_us, finding.code == _ONCE, finding.code, where
