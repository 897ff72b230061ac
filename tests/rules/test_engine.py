"""The engine answers for every rule, whatever the rule does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, cast

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceopt.analyzer.facts import Facts
from traceopt.errors import ConfigError
from traceopt.result.finding import Fix, Impact
from traceopt.result.words.effort_and_risk import Effort, Risk
from traceopt.result.words.vendors import NVIDIA
from traceopt.rules.engine import RulesOutcome, configure, prepare, run_rules
from traceopt.rules.registry import TRACE_QUALITY, Registry
from traceopt.rules.rule import Findings, Rule, threshold
from traceopt.rules.savings.price import Price


class FakeFacts:
    state = None
    has_trace = True
    training_framework = None
    step_ns = 1e6
    replay_trusted = False  # savings are as the rules state them
    replay_error = None
    tried_here = ()
    quality = SimpleNamespace(sampled_share=None)
    call_sites = SimpleNamespace(user_caller_of=lambda *_: None, recorded=False)
    device = SimpleNamespace(vendor=NVIDIA, compiles=True, unsupported=None)

    has_gpu = True
    times_hold = True
    differentiates_twice = False
    from_nsight = False
    trace = SimpleNamespace(ops=SimpleNamespace(dims=np.array([-1])), meta=SimpleNamespace(detail=None))


def saving(est_us: float, share: float = 0.2) -> Price:
    est_ns = round(est_us * 1e3)
    return Price(est_ns // 2, est_ns, est_ns * 2, share, "measured", (est_ns / 2, est_ns, est_ns * 2))


class Sample(Rule):
    """A rule that yields the savings it is told to."""

    code: ClassVar[str] = "SA001"
    name: ClassVar[str] = "sample"
    title: ClassVar[str] = "Change the sample"
    family: ClassVar[str] = "sample"
    savings: tuple[float, ...] = threshold((), "microseconds to find")
    min_share: Annotated[float, msgspec.Meta(ge=0, le=1)] = threshold(0.03, "share of the step")
    depth: int = threshold(4, "frames")

    def check(self, facts: Facts) -> Findings:  # noqa: ARG002
        for us in self.savings:
            yield self.finding(why=f"costs {us} us", fix=Fix("change it"), saving=saving(us, us / 1000), evidence=[])


def variant(code: str, base: type[Rule] = Sample, **attributes: Any) -> type[Rule]:
    return type(code, (base,), {"code": code, "name": code.lower(), **attributes})


def ask(*rules: Rule, debug: bool = False) -> RulesOutcome:
    return run_rules(rules, cast("Facts", FakeFacts()), debug=debug)


def test_statuses_and_reasons() -> None:
    blind = variant("BL001", requires=("gpu", "shapes", "stacks"))
    absent = variant("AB001", applies=lambda *_: "No convolutions.")
    calm = variant("CA001", passed=lambda *_: "0.1% of the step.")
    checks = ask(Sample(savings=(400.0,)), blind(), absent(), calm()).checks
    assert [(check.code, check.status, check.reason) for check in checks] == [
        ("SA001", "found", "costs 400.0 us"),
        ("BL001", "not_checked", "Shapes were not recorded; profile with record_shapes=True."),
        ("AB001", "not_applicable", "No convolutions."),
        ("CA001", "passed", "0.1% of the step."),
    ]
    assert {check.title for check in checks} == {"Change the sample"}


def raise_(error: BaseException) -> Any:
    raise error


def half_way(*_: object) -> Findings:
    yield from Sample(savings=(500.0,)).check(cast("Facts", None))
    raise ZeroDivisionError("division\nby \x1b[31mzero")


class MuteError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def yielding(**parts: Any) -> Any:
    """A check that finds something with such parts."""
    sound = {"why": "w", "fix": Fix("f"), "saving": None, "evidence": []}
    return lambda rule, _: iter([rule.finding(**{**sound, **parts})])


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"check": half_way}, r"ZeroDivisionError: division by \x1b[31mzero"),
        ({"check": lambda *_: raise_(SystemExit(1))}, "SystemExit: 1"),
        ({"check": lambda *_: raise_(RecursionError("deep"))}, "RecursionError: deep"),
        ({"check": lambda *_: None}, "TypeError: 'NoneType' object is not iterable"),
        ({"check": lambda *_: iter(["text"])}, "TypeError: check() yielded str, not a Finding"),
        ({"applies": lambda *_: raise_(KeyError("x"))}, "KeyError: 'x'"),
        ({"passed": lambda *_: raise_(ValueError("y"))}, "ValueError: y"),
        ({"requires": ("no-such-thing",)}, "KeyError: 'no-such-thing'"),
        ({"check": lambda *_: raise_(MuteError())}, "MuteError:"),
        ({"check": yielding(why=5)}, "ValidationError: Expected `str`, got `int` - at `$.why`"),
        ({"check": yielding(fix="text")}, "ValidationError: Expected `object`, got `str` - at `$.fix`"),
        ({"check": yielding(evidence=None)}, "TypeError: 'NoneType' object is not iterable"),
        ({"check": yielding(why="\ud800")}, "TypeError: str is not valid UTF-8: surrogates not allowed"),
        ({"check": yielding(confidence="odd")}, "ValidationError: Invalid enum value 'odd' - at `$.confidence`"),
        (
            {"check": yielding(saving=saving(1e300, 0.1))},
            "ValueError: the saving is impossibly large: 1e+300 us per step",
        ),
        ({"passed": lambda *_: 5}, "ValidationError: Expected `str`, got `int` - at `$.reason`"),
    ],
)
def test_a_rule_that_raises_is_an_error_and_the_others_run(attributes: dict[str, Any], reason: str) -> None:
    broken = variant("BR001", **attributes)()
    outcome = ask(broken, Sample(savings=(100.0,)))
    assert [(check.status, check.reason) for check in outcome.checks] == [
        ("error", reason),
        ("found", "costs 100.0 us"),
    ]
    assert [finding.code for finding in outcome.findings] == ["SA001"]
    with pytest.raises((Exception, SystemExit)) as caught:
        ask(broken, debug=True)
    assert type(caught.value).__name__ in reason


def test_a_plugin_may_give_effort_and_risk_in_its_own_words() -> None:
    rules = (
        variant("OW001", effort="Two afternoons", risk="Fewer points in the charts"),
        variant("KN001", effort="One line", risk="Changes rounding"),
    )
    own, known = (ask(rule(savings=(10,)), debug=True).findings[0] for rule in rules)
    assert (own.effort, own.risk, own.risk_words) == (Effort.FEW_LINES, Risk.OTHER, "Fewer points in the charts")
    assert (known.effort, known.risk, known.risk_note) == (Effort.ONE_LINE, Risk.ROUNDING, None)


def test_ctrl_c_is_not_an_error_of_the_rule() -> None:
    with pytest.raises(KeyboardInterrupt):
        ask(variant("CC001", check=lambda *_: raise_(KeyboardInterrupt()))())


def test_a_saving_of_nothing_is_none() -> None:
    [found] = ask(Sample(savings=(0.0,))).priced
    assert (found.price, found.finding.saving, found.finding.impact) == (None, None, "info")


@pytest.mark.parametrize("us", [float("nan"), float("inf")])
def test_a_saving_that_is_no_number_is_an_error(us: float) -> None:
    outcome = ask(Sample(savings=(us,)))
    assert not outcome.findings
    assert outcome.checks[0].status == "error"


def test_trace_quality_runs_first_and_becomes_notes() -> None:
    quality = variant("TQ001", family=TRACE_QUALITY)(savings=(10.0,))
    outcome = ask(Sample(savings=(100.0,)), quality)
    assert [check.code for check in outcome.checks] == ["TQ001", "SA001"]
    assert [(note.code, note.name, note.text) for note in outcome.notes] == [("TQ001", "tq001", "costs 10.0 us")]
    assert [finding.code for finding in outcome.findings] == ["SA001"]


@given(st.lists(st.tuples(st.sampled_from(["AA001", "BB001"]), st.integers(0, 999)), max_size=12), st.randoms())
def test_findings_come_in_the_order_of_the_plan_then_most_valuable_first(
    planted: list[tuple[str, int]], random: Any
) -> None:
    rules = [variant(code)(savings=(us,)) for code, us in planted]
    expected = [(f.code, f.why) for f in ask(*rules).findings]
    random.shuffle(rules)
    outcome = ask(*rules)
    assert [(f.code, f.why) for f in outcome.findings] == expected
    assert outcome.plan is not None
    planned = len(outcome.plan.rows)
    assert [row.fix.finding.why for row in outcome.plan.rows] == [why for _, why in expected[:planned]]
    findings = outcome.findings[planned:]
    ranks: list[Impact] = ["high", "medium", "low", "info"]
    keys = [(ranks.index(f.impact), -(f.saving.est_us if f.saving else 0), f.code) for f in findings]
    assert keys == sorted(keys)


def test_configure_converts_and_refuses() -> None:
    rule = configure(Sample, {"min-share": 1, "savings": [1.0, 2]})
    assert repr(rule) == "Sample(savings=(1.0, 2.0), min_share=1.0, depth=4)"
    for settings, message in [
        ({"min_shar": 0.1}, "rule SA001: unknown setting 'min_shar'; did you mean 'min_share'?"),
        ({"zzz": 0.1}, "rule SA001: unknown setting 'zzz'; known: savings, min_share, depth"),
        ({"min_share": "a lot"}, "rule SA001: min_share: expected `float`, got `str`"),
        ({"min_share": 30}, "rule SA001: min_share: expected `float` <= 1.0"),
        ({"min_share": float("nan")}, "rule SA001: min_share: expected a finite number, got nan"),
        ({"depth": True}, "rule SA001: depth: expected `int`, got `bool`"),
        ({"depth": 1.5}, "rule SA001: depth: expected `int`, got `float`"),
    ]:
        with pytest.raises(ConfigError) as caught:
            configure(Sample, settings)
        assert str(caught.value) == message


def test_configure_reports_what_the_rule_itself_refuses() -> None:
    class Even(Sample):
        def __post_init__(self) -> None:
            if self.depth % 2:
                raise ValueError("depth must be even")

    with pytest.raises(ConfigError, match="rule SA001: depth must be even"):
        configure(Even, {"depth": 3})


def test_prepare_selects_and_configures_by_code_or_name() -> None:
    other = variant("OT001")
    registry = Registry((other, Sample))
    (rule,) = prepare(registry, select_codes=["SA"], thresholds={"sample": {"depth": 9}})
    assert repr(rule) == repr(Sample(depth=9))
    assert [type(rule) for rule in prepare(registry)] == [other, Sample]
    with pytest.raises(ConfigError, match="rule OT001: unknown setting 'nope'"):
        prepare(registry, select_codes=["SA"], thresholds={"ot001": {"nope": 1}})
    with pytest.raises(ConfigError, match="no rule 'SA002'; did you mean 'SA001'"):
        prepare(registry, thresholds={"SA002": {}})
    with pytest.raises(ConfigError, match="expected a table"):
        prepare(registry, thresholds={"SA001": cast("dict[str, Any]", 3)})
