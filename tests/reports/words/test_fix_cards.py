"""What is said of each fix: its name, what it needs, and why it is not in the plan."""

from __future__ import annotations

import sample
from msgspec.structs import replace

from traceopt.reports.words.fixes.fix_cards import cards, groups, name, needs
from traceopt.result.document import Result
from traceopt.result.finding import Location
from traceopt.result.words.quantities import NO_BREAK_SPACE as NB


def test_a_fix_outside_the_plan_says_why() -> None:
    result = sample.rich()
    planned = [row.code for row in result.plan]

    def reasons(*same_cause: str, **numbers: float) -> set[str]:
        findings = [
            replace(one, shares_cause_with=[] if one.code in planned else [*same_cause], **numbers)
            for one in result.findings
        ]
        others = cards(replace(result, findings=findings))
        return {needs(card) for card in others if card.number is not None and card.row is None}

    assert reasons(after_plan_us=500.0) == {f"saves 0.50{NB}ms after the plan"}
    assert reasons(after_plan_us=0.0) == {"saves nothing after the plan"}
    assert reasons(planned[0]) == {"same cause as fix 1"}
    less = f"; with it instead, the plan saves 3.3{NB}ms less"
    assert reasons(*planned[:2], instead_lost_us=3300.0) == {f"same cause as fixes 1 and 2{less}"}
    assert reasons(planned[0], instead_lost_us=0.0) == {"same cause as fix 1; with it instead, the plan saves as much"}


def test_a_title_that_stands_twice_has_its_function() -> None:
    result = sample.rich()
    first, *rest = result.findings
    place = Location("train.py", 33, "read_loss")
    again = replace(first, locations=[place])
    assert name(first, result) == first.title
    assert name(again, replace(result, findings=[first, again, *rest])) == f"{first.title}, in read_loss"


def test_a_fix_below_one_percent_is_minor() -> None:
    """It keeps its number, and is not listed with the alternatives of the plan."""
    result = sample.rich()
    other, *rest = groups(result).rest
    assert other.finding.saving is not None

    def small(share: float, after_plan_us: float | None = None) -> Result:
        saving = replace(other.finding.saving, est_us=share * 412_000, share=share)
        made = replace(other.finding, saving=saving, after_plan_us=after_plan_us)
        return replace(result, findings=[made if one is other.finding else one for one in result.findings])

    minor = groups(small(0.002))
    assert [(card.number, needs(card)) for card in minor.minor] == [(other.number, "")]
    assert [card.finding for card in minor.rest] == [card.finding for card in rest]
    assert groups(small(0.02)).minor == []
    assert groups(small(0.002, after_plan_us=9000.0)).minor == []


def test_one_call_that_makes_two_fixes_is_named() -> None:
    result = sample.rich()
    plan = [replace(row, needs=[], same_edit=1 if place else None) for place, row in enumerate(result.plan)]
    shown = [needs(card) for card in cards(replace(result, plan=plan)) if card.row is not None]
    assert shown[:2] == ["", "same edit as fix 1"]
