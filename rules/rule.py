"""The base class of rules: static metadata, typed thresholds, and a pure check of the facts."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

from msgspec import Struct

from traceopt.analyzer.requirements import lacks, rules_out
from traceopt.result.finding import Confidence, Evidence, Finding, Fix, Impact, Location, impact_of_share, sure_of
from traceopt.result.words.effort_and_risk import Effort, Risk, risk_and_note
from traceopt.result.words.message import Message
from traceopt.rules.evidence import places
from traceopt.rules.savings.price import Price, Priced

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform

    from traceopt.analyzer.facts import Facts
    from traceopt.analyzer.ranks.run_facts import RunFacts
else:

    def dataclass_transform(**_: bool):
        return lambda cls: cls


T = TypeVar("T")


class Threshold(Struct):
    """A setting of a rule: its default and one line on what it limits. Reading it on the rule returns the value."""

    default: Any
    text: str
    name: str = ""

    def __set_name__(self, rule: type[Rule], name: str) -> None:
        self.name = name

    def __get__(self, rule: Rule | None, of: type[Rule]) -> Any:
        """The default; a value given to a rule is in the rule's own `__dict__` and takes precedence."""
        return self.default


def threshold(default: Any, text: str) -> Any:
    """Declares a threshold: `min_share: float = threshold(0.05, "share of the step")`."""
    return Threshold(default, text)


def required(fact: T | None) -> T:
    """A fact that the rule names in `requires`, so it is there. Raises ValueError if it is not."""
    if fact is None:
        raise ValueError("the rule does not name this fact in `requires`")
    return fact


Findings = Iterator[Finding | Priced]  # what check() yields; self.finding() makes one


class Former(Struct, frozen=True):
    """A rule that became part of another one: in options, settings and commands, its code and name stand for that one.

    `thresholds`: the present names of its thresholds that were renamed; None for one that has no effect any more.
    """

    code: str
    name: str
    thresholds: dict[str, str | None] = {}

    def present(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Its settings under the present names."""
        names = {name: self.thresholds.get(str(name).replace("-", "_"), name) for name in settings}
        return {now: settings[name] for name, now in names.items() if now is not None}


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Rule:
    """Base of every rule. Class variables describe the rule; thresholds are passed by keyword and cannot change later.

    The docstring of a rule is its page: what it measures, why that costs, how to fix it (with code), when the
    rule is wrong, and sources.
    """

    code: ClassVar[str]
    name: ClassVar[str]  # kebab-case noun for the problem; stable once released
    title: ClassVar[str]  # imperative: the change to make
    family: ClassVar[str]
    effort: ClassVar[Effort] = Effort.FEW_LINES
    risk: ClassVar[Risk] = Risk.NONE
    risk_note: ClassVar[str | None] = None  # the risk in a few words, where its kind does not say it all
    confidence: ClassVar[Confidence] = "high"
    requires: ClassVar[tuple[str, ...]] = ()  # names in analyzer/requirements.py
    requires_on_cpu: ClassVar[tuple[str, ...] | None] = None  # instead of `requires`, in a run that uses no GPU
    requires_one_of: ClassVar[tuple[str, ...]] = ()  # any one of these is enough
    former: ClassVar[tuple[Former, ...]] = ()  # rules that are part of this one now
    refutable: ClassVar[bool] = False  # the traces of all ranks may show that the fix saves nothing
    needs_trace: ClassVar[bool] = True  # False: it reads only files beside the trace, and runs without one

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """A plug-in may give effort and risk in its own words."""
        super().__init_subclass__(**kwargs)
        if "title" in vars(cls):
            cls.title = Message(cls.title)
        cls.effort = Effort(cls.effort)
        cls.risk, cls.risk_note = risk_and_note(cls.risk, cls.risk_note)

    def __init__(self, **thresholds: Any) -> None:
        if thresholds and (unknown := thresholds.keys() - {one.name for one in self.thresholds()}):
            raise TypeError(f"{type(self).__name__} has no threshold {', '.join(sorted(unknown))}")
        vars(self).update(thresholds)
        self.__post_init__()

    def __post_init__(self) -> None:
        """A rule may raise ValueError here for thresholds that contradict each other."""

    def __repr__(self) -> str:
        """Includes all thresholds, because they determine the results."""
        values = (f"{one.name}={getattr(self, one.name)!r}" for one in self.thresholds())
        return f"{type(self).__qualname__}({', '.join(values)})"

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{name} cannot be set: rules are immutable")

    def applies(self, facts: Facts) -> str | None:  # noqa: ARG002
        """Why this rule does not apply to this trace ("No convolutions."), or None if it does."""
        return None

    def missing(self, facts: Facts) -> str | None:
        """What this trace lacks for the rule and how to record it, or None if the rule can be checked."""
        needed = self.needs(facts)
        if (lack := next((lack for requirement in needed if (lack := lacks(facts, requirement))), None)) is not None:
            return lack
        either = [lacks(facts, one) for one in self.requires_one_of if rules_out(facts, one) is None]
        return either[0] if either and None not in either else None

    def ruled_out(self, facts: Facts) -> str | None:
        """Why a trace of this run can never have what the rule requires, or None."""
        for requirement in self.needs(facts):
            if (why := rules_out(facts, requirement)) is not None:
                return why
        either = [rules_out(facts, one) for one in self.requires_one_of]
        return either[0] if either and None not in either else None

    def needs(self, facts: Facts) -> tuple[str, ...]:
        """The requirements that hold for this run."""
        on_cpu = self.requires_on_cpu is not None and not facts.has_gpu and not facts.quality.gpu_expected
        return self.requires_on_cpu if on_cpu and self.requires_on_cpu is not None else self.requires

    def check(self, facts: Facts) -> Findings:
        """Yields what is worth changing; reads facts, never events."""
        raise NotImplementedError

    def passed(self, facts: Facts) -> str:  # noqa: ARG002
        """One sentence for the user when check() yields nothing, with numbers if possible."""
        return "No sign of it in this trace."

    def in_view_of_ranks(self, finding: Finding, run: RunFacts) -> Finding:  # noqa: ARG002
        """A finding of one rank, once all ranks were read. Only a `refutable` rule may take its saving."""
        return finding

    @classmethod
    def page(cls) -> str:
        """The rule's documentation, as Markdown."""
        return inspect.getdoc(cls) or ""

    @classmethod
    def thresholds(cls) -> tuple[Threshold, ...]:
        """The settings a user can change."""
        declared = {
            name: one.text
            for base in reversed(cls.__mro__)
            for name, one in vars(base).items()
            if isinstance(one, Threshold)
        }
        return tuple(Threshold(getattr(cls, name), text, name) for name, text in declared.items())

    def finding(
        self,
        *,
        why: str,
        fix: Fix,
        saving: Price | None = None,
        evidence: Sequence[Evidence] = (),
        locations: list[Location] | None = None,
        title: str | None = None,
        effort: Effort | None = None,
        risk: Risk | None = None,
        risk_note: str | None = None,
        confidence: Confidence | None = None,
        ranks: list[int] | None = None,
        shares_cause_with: list[str] | None = None,
        aspect: str | None = None,
        occasional: bool = False,
        impact: Impact = "info",
    ) -> Priced:
        """A finding with this rule's metadata; the saving determines the impact. `locations`: the first ones of the
        evidence, unless given. `aspect`: which of several things it is, for programs. `occasional`: the cost is not one
        of every step. `impact`: without a saving; high of a hang, a crash, or what takes more of the run than its
        steps.
        """
        if risk is None:
            risk, risk_note = self.risk, risk_note or self.risk_note
        risk, risk_note = risk_and_note(risk, risk_note)
        sure = confidence or self.confidence
        if saving is not None and saving.est_ns:
            sure = sure_of(sure, saving.low_ns)
        finding = Finding(
            code=self.code,
            name=self.name,
            title=title or self.title,
            impact=impact if saving is None else impact_of_share(saving.share),
            confidence=sure,
            effort=Effort(effort or self.effort),
            risk=risk,
            risk_note=risk_note,
            saving=None if saving is None else saving.saving,
            why=why,
            evidence=list(evidence),
            locations=places(evidence) if locations is None else list(dict.fromkeys(locations)),
            fix=fix,
            ranks=ranks or [],
            shares_cause_with=shares_cause_with or [],
            family=self.family,
            aspect=aspect,
        )
        return Priced(finding, saving, occasional)
