"""The document of a run: what all ranks show of a finding decides on the plan and the verdict."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from support.traces import GetExample

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.ranks.rank_summary import summarize
from traceopt.analyzer.ranks.run_facts import RunFacts
from traceopt.document.decision import decided_again
from traceopt.document.merge import MergedRun
from traceopt.document.rank_answer import RankAnswer, Refuted
from traceopt.document.rank_document import rank_document
from traceopt.document.run_document import run_document
from traceopt.result.document import Result
from traceopt.result.finding import Finding
from traceopt.rules.engine import check_rules, planned, refuted, run_rules
from traceopt.rules.registry import builtin_rules
from traceopt.rules.rule import Rule


def rules_with(code: str, may_refute: bool = True, **changes: object) -> list[Rule]:
    """The rules; in view of all ranks, the one with this code changes its findings so."""
    (of_code,) = (rule for rule in builtin_rules() if rule.code == code)

    class Seen(of_code):  # type: ignore[misc, valid-type]
        """As the rule."""

        refutable = may_refute

        def in_view_of_ranks(self, finding: Finding, run: RunFacts) -> Finding:  # noqa: ARG002
            return replace(finding, **changes)

    return [Seen() if rule.code == code else rule() for rule in builtin_rules()]


def document_of(facts: Facts, rules: Sequence[Rule], *, debug: bool = True) -> Result:
    outcome = check_rules(rules, facts, debug=True)
    document = rank_document(facts, planned(outcome, facts))
    decisions = [
        Refuted(codes, decided_again(document, facts, planned(other, facts)))
        for codes, other in refuted(outcome, rules)
    ]
    merged = MergedRun()
    assert merged.add(0, RankAnswer.packed(document, summarize(facts), [], refuted=decisions)) is None
    assert merged.shown is not None
    return run_document(merged, merged.shown, rules, [], several=False, debug=debug)


def test_a_refuted_fix_leaves_a_plan_and_a_verdict_that_are_made_without_it(example: GetExample) -> None:
    subject = example("five_faults")
    _, one, *others = subject.result.plan
    assert others
    seen = document_of(subject.facts, rules_with(one.code, saving=None, impact="info", why="It is not."))
    without = [rule() for rule in builtin_rules() if rule.code != one.code]
    expected = rank_document(subject.facts, run_rules(without, subject.facts))
    assert (seen.verdict, seen.plan, seen.combined) == (expected.verdict, expected.plan, expected.combined)
    assert {one.code for one in seen.findings} == {one.code for one in subject.result.findings}
    (check,) = [check for check in seen.checks if check.code == one.code]
    assert (check.status, check.reason) == ("found", "It is not.")


def test_without_a_fix_there_is_no_plan(example: GetExample) -> None:
    seen = document_of(example("slow_loader").facts, rules_with("DL001", saving=None))
    assert (seen.plan, seen.combined) == ([], None)


def test_other_words_leave_the_plan_as_it_is(example: GetExample) -> None:
    subject = example("slow_loader")
    seen = document_of(subject.facts, rules_with("DL001", why="Another reason."))
    assert (seen.plan, seen.combined) == (subject.result.plan, subject.result.combined)
    assert [one.why for one in seen.findings if one.code == "DL001"] == ["Another reason."]


def test_a_rule_that_raises_leaves_its_finding(example: GetExample) -> None:
    subject = example("slow_loader")
    seen = document_of(subject.facts, rules_with("DL001", unknown=1), debug=False)
    assert seen.findings == subject.result.findings
    assert [check.status for check in seen.checks if check.code == "DL001"] == ["error"]


def test_only_a_refutable_rule_takes_a_saving(example: GetExample) -> None:
    """The plan of the rank rests on it."""
    facts, rules = example("slow_loader").facts, rules_with("DL001", may_refute=False, saving=None)
    with pytest.raises(ValueError, match="refutable"):
        document_of(facts, rules)
    assert document_of(facts, rules, debug=False).plan == example("slow_loader").result.plan
